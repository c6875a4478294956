"""A line for each row of the grammar: from the tests of the logs, or made from its pattern."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from arriero.logs.grammar import RULES, events
from arriero.logs.lines import clean
from tests.hostile.worst import example

LOGS = Path(__file__).parent.parent / "logs" / "data"


def lines() -> Iterator[str]:
    """Every line of the logs that tests of the grammar read."""
    for name in ("messages.toml", "pasted.toml"):
        for case in tomllib.loads((LOGS / name).read_text(encoding="utf-8"))["case"]:
            yield from case["log"].splitlines()
    for path in sorted(LOGS.glob("*/*.txt")):
        yield from path.read_text(encoding="utf-8", errors="replace").splitlines()


@cache
def phrases() -> dict[str, str]:
    """Row of the grammar → a line that it fits."""
    found: dict[str, str] = {}
    for number, raw in enumerate(dict.fromkeys(lines())):
        text = clean(raw, number).text
        for event in events(text):
            found.setdefault(event.rule.id, text)
    for rule in RULES:
        if rule.id not in found:
            found[rule.id] = _made(rule.key, rule.pattern)
    return {rule.id: found[rule.id] for rule in RULES}


def _made(key: str, pattern: re.Pattern[str]) -> str:
    text = example(pattern)
    return text if key in text else f"{text} {key}"
