"""``docs/contract.md`` names every document, part, field and word, and every exit status."""

from __future__ import annotations

import re
import typing
from enum import EnumMeta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from arriero.base import errors, words
from arriero.record import SCHEMAS, document_type

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "contract.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`([\w.-]+)`")


def parts(kind: Any, found: dict[str, Any]) -> dict[str, Any]:
    """Name → type, of a document and of everything that it is made of."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        if kind.__name__ in found:
            return found
        found[kind.__name__] = kind
        for hint in typing.get_type_hints(kind).values():
            parts(hint, found)
    for one in typing.get_args(kind):
        parts(one, found)
    return found


KINDS = {name: document_type(name) for name in SCHEMAS}
DOCUMENTS = {kind.__name__: name for name, kind in KINDS.items()}
PARTS = {name: kind for one in KINDS.values() for name, kind in parts(one, {}).items()}


def told(name: str) -> str:
    """What the page says of one document, up to its parts, or of one part."""
    if name in DOCUMENTS:
        tag = re.escape(f"arriero.{DOCUMENTS[name]}/1")
        pattern = rf"^## {tag}$(.*?)(?=^\*\*(?!Boundary\*\*\))|^## |\Z)"
    else:
        pattern = rf"\*\*{name}\*\*(.*?)(?=^\*\*|^## |\Z)"
    found = re.findall(pattern, PAGE, re.DOTALL | re.MULTILINE)
    assert found, f"docs/contract.md does not tell of {name}"
    return "\n".join(found)


@pytest.mark.parametrize("name", sorted(PARTS))
def test_every_field_is_told(name: str) -> None:
    fields = {*PARTS[name].__struct_fields__} - ({"schema"} if name in DOCUMENTS else set())
    assert fields <= {*NAMED.findall(told(name))}


WORDS = [kind for kind in vars(words).values() if isinstance(kind, EnumMeta) and list(kind)]


@pytest.mark.parametrize("kind", WORDS, ids=lambda kind: kind.__name__)
def test_every_word_is_told(kind: Any) -> None:
    assert {word.value for word in kind} <= {*re.findall(r"`([^`\n]+)`", PAGE)}


def statuses(kind: type[errors.ArrieroError]) -> set[int]:
    """Of an error and of every error that is made from it, wherever that is."""
    import arriero.cli  # noqa: F401  it has errors of its own

    return {kind.exit_code}.union(*(statuses(one) for one in kind.__subclasses__()))


def test_every_exit_status_is_told() -> None:
    rows = {int(row) for row in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)}
    assert rows == {0, *statuses(errors.ArrieroError)}
