"""The glossary names what there is, each word once."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import arriero

ROOT = Path(arriero.__file__).parent
TEXT = (Path(__file__).parents[2] / "docs" / "glossary.md").read_text("utf-8")
NAMED = re.compile(r"`([a-z]+)\.([A-Za-z_]+)`")
TERM = re.compile(r"\*\*([^*]+)\*\*")


def _defined(room: str) -> Iterator[str]:
    """Classes and functions of a room, in whichever of its files."""
    for path in (ROOT / room).rglob("*.py"):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                yield node.name


def test_every_name_is_where_it_says() -> None:
    named = NAMED.findall(TEXT)
    assert len(named) > 40
    rooms = {room: set(_defined(room)) for room, _ in named}
    assert [f"{room}.{name}" for room, name in named if name not in rooms[room]] == []


def test_every_term_has_one_meaning() -> None:
    terms = Counter(term.lower() for term in TERM.findall(TEXT))
    assert [term for term, times in terms.items() if times > 1] == []


def test_every_link_leads_somewhere() -> None:
    for path in re.findall(r"\]\(([\w/.-]+\.md)\)", TEXT):
        assert (Path(__file__).parents[2] / "docs" / path).is_file(), path
