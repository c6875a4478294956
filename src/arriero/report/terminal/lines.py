"""Lines for a terminal: styled, wrapped, in columns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from arriero.report.view.text import cells, cut, encoded, pad, wrap
from arriero.report.view.verdict import VerdictView

NARROW: Final = 60
"""Screens below this get fewer columns and smaller gaps."""
_FIGURE: Final = re.compile(r"\d")
_COLOURS: Final = {"good": "1;32", "bad": "1;31", "open": "1;33", "head": "1", "dim": "2"}


class Line(msgspec.Struct, frozen=True):
    """One line. ``style`` colours its first ``span`` characters, all of it when ``span`` is 0."""

    text: str
    style: str = ""
    span: int = 0
    exact: bool = False
    """To be pasted: no character of it is replaced."""


class Block(msgspec.Struct, frozen=True):
    """Lines that are shown together or not at all; rank 0 is always shown, then 1, 2, ..."""

    rank: int
    lines: Sequence[Line]
    row: bool = False


def wrapped(text: str, width: int, *, style: str = "") -> list[Line]:
    return [Line(line, style) for line in wrap(text, width)]


def bullet(text: str, width: int) -> list[Line]:
    return [Line(line) for line in wrap(text, width, first="  ", rest="    ")]


def paragraph(title: str, text: str, width: int) -> list[Line]:
    """A run-in heading and its text; nothing without text."""
    if not text:
        return []
    first, rest = (title + "  ", "  ") if width < NARROW else (title.ljust(11), " " * 11)
    first, *more = wrap(text, width, first=first, rest=rest)
    return [Line(first, "head", len(title)), *map(Line, more)]


def titled(title: str, text: str, width: int) -> list[Line]:
    """A heading and the text behind it."""
    title = cut(title, width // 2)
    first, *more = wrap(text, width, first=title + "  ", rest="  ")
    return [Line(first, "head", len(title)), *map(Line, more)]


def verdict_blocks(verdict: VerdictView, width: int) -> list[Block]:
    """The word, its sentence and what supports them."""
    word = verdict.word
    indent = "  " if width < NARROW or cells(word) > 8 else " " * (len(word) + 2)
    first, *more = wrap(verdict.sentence, width, first=word + "  ", rest=indent)
    blocks = [Block(0, [Line(first, verdict.tone.value, len(word)), *map(Line, more)])]
    if verdict.sizes:
        lines = wrap(verdict.sizes, width, first=indent, rest=indent + "  ")
        blocks.append(Block(0, list(map(Line, lines))))
    if verdict.quote:
        lines = wrap(verdict.quote, width, first=indent + "> ", rest=indent + "  ")
        if len(lines) > 3:
            lines = [*lines[:2], cut(lines[2], width - 1) + "…"]
        blocks.append(Block(2, [Line(line, "dim") for line in lines]))
    if verdict.details:
        lines = wrap(" ".join(verdict.details), width, first=indent, rest=indent)
        blocks.append(Block(2, list(map(Line, lines))))
    return blocks


def natural(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    """Cells that each column takes uncut."""
    return [max(map(cells, column)) for column in zip(heads, *rows, strict=True)]


def grid(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int,
    *,
    right: Iterable[int] = (),
    last: int = 24,
) -> list[Line]:
    """Columns as wide as their content; the last one gets ``last`` cells, or what is left.

    Where that is too wide, words are cut and figures are not.
    """
    columns = natural(heads, rows)
    space = gap(width)
    last = min(columns[-1], last, width // 2)
    floors = [
        max([min(column, 4), *(cells(row[at]) for row in rows if _FIGURE.search(row[at]))])
        for at, column in enumerate(columns[:-1])
    ]
    while sum(columns[:-1]) + space * (len(columns) - 1) + last > width:
        loose = [at for at, floor in enumerate(floors) if columns[at] > floor]
        if not loose:
            break
        columns[max(loose, key=columns.__getitem__)] -= 1
    columns[-1] = max(1, width - sum(columns[:-1]) - space * (len(columns) - 1))
    ragged = set(right)

    def line(row: Sequence[str]) -> str:
        shown = (
            pad(cell, column, right=index in ragged)
            for index, (cell, column) in enumerate(zip(row, columns, strict=True))
        )
        return cut((" " * space).join(shown).rstrip(), width)

    return [Line(line(heads), "head"), *(Line(line(row)) for row in rows)]


def gap(width: int) -> int:
    """Cells between two columns."""
    return 1 if width < NARROW else 2


def finish(lines: Iterable[Line], *, colour: bool, encoding: str) -> str:
    return "".join(_painted(line, colour, encoding) + "\n" for line in lines)


def _painted(line: Line, colour: bool, encoding: str) -> str:
    span = line.span or len(line.text)
    head = encoded(line.text[:span], encoding, exact=line.exact)
    tail = encoded(line.text[span:], encoding, exact=line.exact)
    if colour and line.style:
        head = f"\x1b[{_COLOURS[line.style]}m{head}\x1b[0m"
    return head + tail
