"""Commands in the recipes of a Makefile or a justfile.

A variable that the file assigns once (also with ``?=``), and a parameter with a default, are
replaced by their values; ``$$`` is a dollar. Functions stay as written.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from arriero.command.inputs import shell
from arriero.command.inputs.model import Room, Written

_ASSIGNED: Final = re.compile(r"(?:export[ \t]+)?([\w.-]+)[ \t]*(?:[:?]{0,2}=)[ \t]*(.*)")
_PARAMETER: Final = re.compile(r"(?<![\w-])([\w-]+)=(\"[^\"]*\"|'[^']*'|[\w.-]+)")
_USED: Final = re.compile(r"\$\$|\$[({]([\w.-]+)[)}]|\{\{\s*([\w-]+)\s*\}\}")
_LEAD: Final = re.compile(r"(?<!\\)((?:\A|\n)[ \t]+)[@+-]+")
"""Prefixes that make and just remove from the first line of a command."""
_CALL: Final = re.compile(r"[()`]")
_DEEPEST: Final = 8


def read(text: str, path: str) -> tuple[Written, ...]:
    """The llama-server commands of all recipes."""
    known: dict[str, list[str]] = {}
    for line in text.split("\n"):
        if found := _ASSIGNED.match(line):
            known.setdefault(found[1], []).append(_bare(found[2]))
        elif line[:1].strip() and line.rstrip().endswith(":"):
            for name, value in _PARAMETER.findall(line):
                known.setdefault(name, []).append(_bare(value))
    written = _LEAD.sub(r"\1", text)
    room = Room(path)
    filled = "\n".join(_recipe(line, known, room) for line in written.split("\n"))
    note = "the file's variables are replaced by their values"
    return tuple(replace(one, unkept=(*one.unkept, note)) for one in shell.read(filled, path))


def _recipe(line: str, known: dict[str, list[str]], room: Room) -> str:
    """A line of a recipe with its variables replaced; empty for any other line."""
    if not line[:1].isspace():
        return ""

    def value(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        values = known.get(match[1] or match[2], [])
        fixed = len(values) == 1 and not _CALL.search(_USED.sub("", values[0]))
        return room.take(values[0]) if fixed else re.sub(r"\s", "", match[0])

    for _ in range(_DEEPEST):
        filled = _USED.sub(value, line)
        if filled == line:
            break
        line = filled
    return line


def _bare(value: str) -> str:
    value = value.split(" #")[0].strip()
    quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
    return value[1:-1] if quoted else value
