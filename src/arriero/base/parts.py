"""The parts of a document in which a secret or a name may be: texts, members, command lines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, Final

import msgspec

DEPTH_CEILING: Final = 64


def blank(item: Any, word: str) -> Any:
    """The value without its texts; numbers and nulls reveal nothing and are kept."""
    if isinstance(item, Enum):
        return item
    if isinstance(item, str):
        return word if item else item
    if isinstance(item, Mapping):
        return {}
    if isinstance(item, list | tuple):
        return type(item)(blank(part, word) for part in item)
    return item


def is_argv(items: Sequence[Any]) -> bool:
    return any(isinstance(item, str) and re.match(r"--?[A-Za-z]", item) for item in items)


def _walk(value: object, depth: int = 0) -> Iterator[tuple[str, object]]:
    """Every part of a document with the name of the member that holds it."""
    if depth > DEPTH_CEILING:
        return
    if isinstance(value, msgspec.Struct):
        value = {name: getattr(value, name) for name in value.__struct_fields__}
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield "", key
            yield str(key), item
            yield from _walk(item, depth + 1)
    elif isinstance(value, list | tuple):
        for item in value:
            yield "", item
            yield from _walk(item, depth + 1)


def texts(document: object) -> Iterator[str]:
    if isinstance(document, str):
        yield document
    for _, part in _walk(document):
        if isinstance(part, str) and not isinstance(part, Enum):
            yield part


def members(document: object) -> Iterator[tuple[str, str]]:
    for name, part in _walk(document):
        values = part if isinstance(part, list | tuple) else (part,)
        for value in values:
            if name and isinstance(value, str) and not isinstance(value, Enum):
                yield name, value


def argvs(document: object) -> Iterator[list[str]]:
    for part in (document, *(part for _, part in _walk(document))):
        if not isinstance(part, list | tuple) or not all(isinstance(word, str) for word in part):
            continue
        if is_argv(part):
            yield list(part)
