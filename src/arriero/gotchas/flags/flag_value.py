"""A flag takes the next flag for its value, or has a value that it cannot take

Symptom
-------
`error while handling argument "-fa"`: unknown value for --flash-attn, and exit status 1. The next
flag is gone, since it was taken for the value.

Root cause
----------
`-fa` was a switch once and takes `on`, `off` or `auto` now. In a command from an older post the
word after it is the next flag. llama-server never looks whether a value looks like a flag.

Workaround
----------
Give the value: `-fa on`.

Better fix
----------
A value that is itself a flag could be refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from arriero.command import Item
from arriero.gguf.presets import tiny
from arriero.gotchas.facts import Facts
from arriero.gotchas.model import (
    Applies,
    Class,
    Found,
    Gotcha,
    Provenance,
    Reproduction,
    Run,
    Severity,
    Signature,
)
from arriero.record import Edit

GOTCHA = Gotcha(
    kind=Class.CONFIGURATION,
    severity=Severity.ERROR,
    updated="2026-11-30",
    concepts=("flags", "flash attention"),
    log=("error while handling argument",),
    provenance=Provenance(builds="seen on 10068 and 10434", command="-fa --jinja"),
    related=("flag-unknown",),
)
_NUMBERS = {
    *("-c", "-n", "-b", "-ub", "-np", "-t", "-tb", "-ngl", "-ncmoe", "-ctxcp", "-cms", "-cram"),
    *("--cache-reuse", "--port", "-fitc"),
}
"""Flags that the engine reads as whole numbers."""
_NUMBER = re.compile(r"\s*[+-]?\d")
_LAYERS = frozenset(["auto", "all"])
_OPEN = re.compile(r"[$`%{]")
"""What a file leaves to others to fill in."""
_WORDS = frozenset(["on", "off", "true", "false", "enabled", "disabled", "1", "0", "auto", "-1"])


def detect(facts: Facts) -> Iterator[Found]:
    for item in facts.command.items:
        flag = item.flag
        if flag is None or flag.removed or flag.arity == 0:
            continue
        switch = "on" in flag.choices
        swallowed = bool(item.values) and facts.command.flags.get(item.values[-1]) is not None
        words = {*flag.choices, *(_WORDS if switch else ())}
        wrong = bool(flag.choices) and (swallowed or item.value not in words)
        if item.complete and (_OPEN.search(item.value or "") or not (wrong or _no_number(item))):
            continue
        yield Found(
            because=_told(item, swallowed),
            applies=Applies.YES if facts.own else Applies.MAYBE,
            missing=() if facts.own else ("the flags of the engine that will run it",),
            edit=_given(item) if switch and (swallowed or not item.complete) else (),
            flag=item.name,
        )


def _told(item: Item, swallowed: bool) -> str:
    choices = ", ".join(item.flag.choices) if item.flag else ""
    if not item.complete:
        return f"{item.name} has no value" + (f"; it takes {choices}" if choices else "")
    taken = (
        f"{item.name} takes {item.value} for its value"
        if swallowed
        else f"{item.name} {item.value}"
    )
    return f"{taken}; it can be {choices or 'a whole number'}"


def _no_number(item: Item) -> bool:
    names = set(item.flag.names if item.flag else ())
    if not names & _NUMBERS or ("-ngl" in names and item.value in _LAYERS):
        return False
    return _NUMBER.match(item.value or "") is None


def _given(item: Item) -> tuple[Edit, ...]:
    return (Edit(flag=item.name, value="on", insert=True),)


_RUN = Run(flags="-c 1024 -fa --no-warmup")

REPRODUCTIONS = (
    Reproduction(
        name="flash-attention",
        model=tiny("llama"),
        run=_RUN,
        control=replace(_RUN, flags="-c 1024 -fa on --no-warmup"),
        shows=Signature(exit_status=1, log=r"error while handling argument \"-fa\""),
    ),
)
