"""Texts made from a regular expression: one that it fits, and those that it is slowest on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any

sre: Any = import_module("re._constants")
_parser: Any = import_module("re._parser")  # it has no other name

_MANY = 16
"""Times from which on a repetition can cost."""
_SAMPLES = "a0 _-./\\:=,;'\"(["
_CATEGORIES = {
    sre.CATEGORY_DIGIT: "0",
    sre.CATEGORY_SPACE: " ",
    sre.CATEGORY_WORD: "a",
    sre.CATEGORY_NOT_DIGIT: "a",
    sre.CATEGORY_NOT_SPACE: "a",
    sre.CATEGORY_NOT_WORD: " ",
}


def parse(pattern: re.Pattern[str]) -> Any:
    """The parsed pattern. Its flags are in force."""
    return _parser.parse(pattern.pattern, pattern.flags & ~re.UNICODE)


def example(pattern: re.Pattern[str]) -> str:
    """A text that the pattern fits if its assertions allow: each repetition at its least."""
    return "".join(_least(parse(pattern), {}))


def _least(tokens: Any, groups: dict[int, str]) -> Iterator[str]:
    for op, arg in tokens:
        if op is sre.LITERAL:
            yield chr(arg)
        elif op is sre.NOT_LITERAL:
            yield next(c for c in _SAMPLES if ord(c) != arg)
        elif op is sre.ANY:
            yield "a"
        elif op is sre.IN:
            yield _member(arg)
        elif op in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
            low, _, inner = arg
            yield "".join(_least(inner, groups)) * low
        elif op is sre.SUBPATTERN:
            number, _, _, inner = arg
            text = "".join(_least(inner, groups))
            groups[number] = text
            yield text
        elif op is sre.ATOMIC_GROUP:
            yield "".join(_least(arg, groups))
        elif op is sre.BRANCH:
            yield "".join(_least(arg[1][0], groups))
        elif op is sre.GROUPREF:
            yield groups.get(arg, "")


def _member(items: Any) -> str:
    """A character of a class, a usual one if it can be."""
    spelled = [item for item in items if item[0] is not sre.NEGATE]
    negated = len(spelled) < len(items)
    if negated:
        return next((c for c in _SAMPLES if not any(_holds(i, c) for i in spelled)), "\u00e9")
    for op, arg in spelled:
        if op is sre.LITERAL:
            return chr(arg)
        if op is sre.RANGE:
            return chr(arg[0])
        if op is sre.CATEGORY:
            return _CATEGORIES[arg]
    return "a"


def _holds(item: Any, char: str) -> bool:
    op, arg = item
    if op is sre.LITERAL:
        return bool(ord(char) == arg)
    if op is sre.RANGE:
        return bool(arg[0] <= ord(char) <= arg[1])
    names = {sre.CATEGORY_DIGIT: r"\d", sre.CATEGORY_SPACE: r"\s", sre.CATEGORY_WORD: r"\w"}
    names |= {sre.CATEGORY_NOT_DIGIT: r"\D", sre.CATEGORY_NOT_SPACE: r"\S"}
    names |= {sre.CATEGORY_NOT_WORD: r"\W"}
    return re.match(names[arg], char) is not None


def repeats(pattern: re.Pattern[str]) -> list[tuple[str, str]]:
    """What to repeat, after what, so that the pattern works most: each (prefix, unit).

    A unit is what stands under one repetition, what stands from the pattern's begin up to it, and
    all of the pattern: a search begins again at each of them.
    """
    found: dict[tuple[str, str], None] = {}
    whole = example(pattern)
    if whole:
        found[("", whole)] = None
        found[("", whole[:-1] or whole)] = None
    for before, inner in _repetitions(parse(pattern), ""):
        unit = inner or "a"
        found[(before, unit)] = None
        found[("", before + unit)] = None
        for separator in (" ", "/", "-", ".", ":", "'", '"', "\\", "["):
            if separator not in unit:
                found[(before, unit + separator)] = None
    return list(found)


def _repetitions(tokens: Any, before: str) -> Iterator[tuple[str, str]]:
    groups: dict[int, str] = {}
    for token in tokens:
        op, arg = token
        if op in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
            _, high, inner = arg
            if high is sre.MAXREPEAT or high >= _MANY:
                yield before, "".join(_least(inner, groups))
            yield from _repetitions(inner, before)
        elif op is sre.SUBPATTERN:
            yield from _repetitions(arg[3], before)
        elif op is sre.ATOMIC_GROUP:
            yield from _repetitions(arg, before)
        elif op is sre.BRANCH:
            for branch in arg[1]:
                yield from _repetitions(branch, before)
        elif op in (sre.ASSERT, sre.ASSERT_NOT):
            yield from _repetitions(arg[1], before)
        elif op is sre.GROUPREF_EXISTS:
            for branch in arg[1:]:
                yield from _repetitions(branch or [], before)
        before += "".join(_least([token], groups))
