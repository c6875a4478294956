"""What a pattern costs grows with the text as plain text's cost does, whatever the text is.

Each pattern is tried on texts made of its own parts (``worst.py``). What four times the text takes
is compared with what one part takes, in the same moments of the same process: a pattern that is
linear needs four times as much, a quadratic one sixteen. Only the ratio counts, the least of
several tries, and nothing that is too short to be measured: a slow or busy machine does not fail.
An engine without backtracking would need no such test. Python's own is loaded anyway; another would
be a dependency, and would lack the look-arounds that half of the patterns have.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import time
from collections.abc import Callable, Iterator
from functools import cache

import pytest

import arriero
from arriero.base.redact import Redactor
from arriero.logs import read_log
from arriero.logs.grammar import HEAD, RULES, TAIL
from tests.hostile.worst import repeats

pytestmark = pytest.mark.alone
_SHORT = 512
_TIMES = 4
_RATIO = 10
"""Between 4, which is linear, and 16."""
_MEASURED = 2e-4
"""Seconds below which what is measured is the clock."""
_TRIES = 6
_SEARCHED = ("arriero.base.places.", "arriero.base.prompts.", "arriero.base.secret.")
"""Modules whose patterns are looked for from any place of a text, but for those named next."""
_AT_ONE_PLACE = ("PUBLIC", "OPENING", "_PREFIXED", "_SYSTEM", "_SAID")
_ROW = HEAD + TAIL


@cache
def patterns() -> dict[str, re.Pattern[str]]:
    """Every compiled pattern that a module of the package holds, by where it was found first."""
    found: dict[tuple[str, int], str] = {}
    for module in pkgutil.walk_packages(arriero.__path__, "arriero."):
        if not module.name.endswith("__main__"):
            for name, value in vars(importlib.import_module(module.name)).items():
                for text, flags in _held(value):
                    found.setdefault((text, flags), f"{module.name}.{name}")
    named: dict[str, re.Pattern[str]] = {}
    for (text, flags), name in found.items():
        named[name if name not in named else f"{name} {len(named)}"] = re.compile(text, flags)
    return named


def _held(value: object, depth: int = 0) -> Iterator[tuple[str, int]]:
    if type(value).__name__ == "_Pattern":  # compiled when it is first used
        value = re.compile(value.pattern, value._flags)  # type: ignore[attr-defined]
    if isinstance(value, re.Pattern):
        if isinstance(value.pattern, str):
            yield value.pattern, value.flags
    elif isinstance(value, dict | list | tuple | set | frozenset) and depth < 3:
        for item in value.values() if isinstance(value, dict) else value:
            yield from _held(item, depth + 1)


def seconds(work: Callable[[str], object], text: str) -> float:
    """Of this thread's own time: what others do meanwhile is not counted."""
    began = time.thread_time()
    work(text)
    return time.thread_time() - began


def growth(work: Callable[[str], object], before: str, unit: str, short: int) -> float:
    """How many times as long four times the text takes, or 0 if it takes next to nothing."""
    times = max(1, short // len(unit))
    little = f"{before}{unit * times}\x01"
    much = f"{before}{unit * times * _TIMES}\x01"
    least = float("inf")
    for _ in range(_TRIES):
        one, four = seconds(work, little), seconds(work, much)
        if four < _MEASURED:
            return 0
        least = min(least, four / max(one, 1e-9))
        if least < _RATIO * 0.7:
            break
    return least


def superlinear(pattern: re.Pattern[str], work: Callable[[str], object], short: int) -> list[str]:
    return [
        f"{before!r} {unit!r}: {ratio:.0f} times"
        for before, unit in repeats(pattern)
        if (ratio := growth(work, before, unit, short)) > _RATIO
    ]


def test_a_pattern_that_is_quadratic_is_seen() -> None:
    quadratic = re.compile(r"\w+x\s*\Z")
    assert superlinear(quadratic, quadratic.search, _SHORT)
    bounded = re.compile(r"\w{1,20}x\s{0,20}\Z")
    assert not superlinear(bounded, bounded.search, _SHORT)


@pytest.mark.parametrize("name", sorted(patterns()))
def test_a_pattern_at_one_place(name: str) -> None:
    pattern = patterns()[name]
    assert superlinear(pattern, pattern.match, _SHORT) == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_row_anywhere_in_a_line(rule: object) -> None:
    pattern: re.Pattern[str] = rule.pattern  # type: ignore[attr-defined]
    assert superlinear(pattern, pattern.search, _ROW) == []


@pytest.mark.parametrize("name", [n for n in sorted(patterns()) if n.startswith(_SEARCHED)])
def test_a_pattern_of_sharing_anywhere(name: str) -> None:
    if name.rpartition(".")[2] not in _AT_ONE_PLACE:
        pattern = patterns()[name]
        assert (
            superlinear(pattern, lambda text: sum(1 for _ in pattern.finditer(text)), _SHORT) == []
        )


REPEATED = [
    *("/home/user/a b/", "/a", "/a b ", "C:\\\\a b\\\\", "model.gguf /home/", "a@host.lan:/x "),
    *("--rpc=", "--rpc host:1 ", "-hft=", "https://a.lan/", "llama-", "llama ", "[1;", "a=b "),
]


@pytest.mark.parametrize("unit", REPEATED)
def test_a_text_for_sharing(unit: str) -> None:
    assert growth(lambda text: Redactor().share(text), "", unit, 2000) < _RATIO


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in sorted(patterns()) if n.startswith(_SEARCHED)])
def test_a_text_for_sharing_of_each_pattern(name: str) -> None:
    assert superlinear(patterns()[name], lambda text: Redactor().share(text), 1000) == []


@pytest.mark.parametrize("unit", [*REPEATED, "CUDA error: ", "ggml_", '{"a":', "9.99.999.999 I "])
def test_a_log_of_one_line_after_the_other(unit: str) -> None:
    def as_lines(text: str) -> object:
        lines = (text[at : at + 4000] + str(at) for at in range(0, len(text), 4000))
        return read_log(["\n".join(lines).encode()])

    assert growth(as_lines, "", unit, 12_000) < _RATIO


@pytest.mark.parametrize("name", sorted(patterns()))
def test_no_group_is_repeated_possessively(name: str) -> None:
    """Python before 3.11.5 does not match ``(?:…)++``; the atomic ``(?>(?:…)+)`` it does."""
    text = patterns()[name].pattern
    assert not re.search(r"(?<!\\)\)(?:[*+?]|\{\d*,?\d*\})\+", text)
