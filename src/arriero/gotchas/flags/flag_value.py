"""A flag swallows the next flag as its value, or has a value that the engine refuses

Symptom
-------
`error while handling argument "-fa"`: unknown value for --flash-attn, and exit status 1. The next
flag is lost because it was taken as the value.

Root cause
----------
`-fa` was once a switch and now takes `on`, `off` or `auto`. In a command from an older post, the
next word is another flag. llama-server does not check whether a value looks like a flag. Other bad
values come from forks, other builds or other programs: each flag accepts only its own words and
numbers.

Workaround
----------
Give the value: `-fa on`.

Better fix
----------
The engine could refuse a value that is itself a flag, and say so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from arriero.command import Flag, Item
from arriero.command.flags import KNOWN
from arriero.command.place import fork_of_value
from arriero.command.values import takes
from arriero.gguf.presets import tiny
from arriero.gotchas.facts import Facts
from arriero.gotchas.model import (
    Applies,
    Class,
    EngineRun,
    Found,
    Gotcha,
    Provenance,
    Reproduction,
    Severity,
    Signature,
)
from arriero.record import Edit

GOTCHA = Gotcha(
    kind=Class.CONFIGURATION,
    severity=Severity.ERROR,
    updated="2026-12-01",
    concepts=("flags", "flash attention"),
    log=("error while handling argument",),
    provenance=Provenance(builds="seen on 10068 and 10434", command="-fa --jinja"),
    related=("flag-unknown",),
)
_OPEN = re.compile(r"[$`%{]")
"""Placeholders that another program fills in."""
_JSON = re.compile(r"\{(?!\{)")
_TYPES = frozenset({"--cache-type-k", "--cache-type-v", "--spec-type"})
"""Flags for which forks have more values."""


def detect(facts: Facts) -> Iterator[Found]:
    sure = facts.own and (facts.build is None or facts.build in KNOWN)
    for item in facts.command.items:
        flag = item.flag
        if flag is None or flag.removed or flag.arity == 0:
            continue
        switch = "on" in flag.choices
        swallowed = bool(item.values) and facts.command.flags.get(item.values[-1]) is not None
        wrong, can = _refused(item, flag, facts.build)
        open_word = _OPEN.search(item.value or "") and not _JSON.match(item.value or "")
        if item.complete and (open_word or not wrong):
            continue
        if item.complete and swallowed and not wrong:
            continue
        doubt = not facts.own or (item.complete and not swallowed and not sure)
        yield Found(
            because=_told(item, swallowed, can),
            applies=Applies.MAYBE if doubt else Applies.YES,
            missing=("the flags of the engine that will run it",) if doubt else (),
            edit=_given(item) if switch and (swallowed or not item.complete) else (),
            flag=item.name,
        )
    yield from _by_variable(facts, sure)


def _refused(item: Item, flag: Flag, build: int | None) -> tuple[bool, str]:
    """Whether the engine refuses a value, and what it takes."""
    known = takes(flag.canonical, build)
    value = item.value or ""
    if known is None:
        wrong = bool(flag.choices) and value not in flag.choices
        return wrong, ", ".join(flag.choices)
    if value in flag.choices or value in flag.words:
        return False, ""  # its own help names it
    if flag.canonical == "--spec-type":
        fine = all(map(known.accepts, value.split(",")))
    else:
        fine = known.accepts(value)
    return not fine, ", ".join(flag.choices) or known.told()


def _by_variable(facts: Facts, sure: bool) -> Iterator[Found]:
    """Values that variables of the command give, where no flag does."""
    command = facts.command
    for flag in command.flags.flags:
        if flag.arity != 1 or flag.env is None or command.count(flag.canonical):
            continue
        value = command.environ.get(flag.env)
        if value is None or _OPEN.search(value):
            continue
        known = takes(flag.canonical, facts.build)
        if known is None or value in (*flag.choices, *flag.words) or known.accepts(value):
            continue
        if flag.canonical == "--spec-type" and all(map(known.accepts, value.split(","))):
            continue
        yield Found(
            because=f"{flag.env}={value[:60]} is refused; allowed: {known.told()}",
            applies=Applies.YES if sure else Applies.MAYBE,
            missing=() if sure else ("the flags of the engine that will run it",),
            flag=flag.canonical,
        )


def _told(item: Item, swallowed: bool, can: str) -> str:
    if not item.complete:
        return f"{item.name} has no value" + (f"; it takes {can}" if can else "")
    if swallowed:
        return f"{item.name} swallows {item.value} as its value; allowed: {can}"
    fork = fork_of_value(item.value) if item.flag and item.flag.canonical in _TYPES else None
    other = f" ({item.value} belongs to {fork})" if fork else ""
    return f"{item.name} {item.value[:60]} is refused; allowed: {can}{other}"


def _given(item: Item) -> tuple[Edit, ...]:
    return (Edit(flag=item.name, value="on", insert=True),)


_RUN = EngineRun(flags="-c 1024 -fa --no-warmup")

REPRODUCTIONS = (
    Reproduction(
        name="flash-attention",
        model=tiny("llama"),
        run=_RUN,
        control=replace(_RUN, flags="-c 1024 -fa on --no-warmup"),
        shows=Signature(exit_status=1, log=r"error while handling argument \"-fa\""),
    ),
)
