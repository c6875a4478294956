"""The engine reads a number up to its first letter: -c 64K means 64 tokens

Symptom
-------
The server starts, but refuses or cuts every longer request: the context has 256 tokens. Nothing in
the log says that part of the value was ignored.

Root cause
----------
The engine reads a whole number as far as its digits go (`std::stoi`) and drops the rest: `64K` is
64, `8GiB` is 8, `131_072` is 131. A context of 64 is then rounded up to 256, the smallest possible.

Workaround
----------
Write the number out: `-c 65536`. Sizes such as `-cram` are in MiB: `-cram 8192`.

Better fix
----------
The server could refuse a number that is followed by something else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from arriero.gguf.presets import tiny
from arriero.gotchas.facts import Facts
from arriero.gotchas.model import (
    Affects,
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
    severity=Severity.WARNING,
    updated="2026-11-30",
    concepts=("flags", "numbers", "context"),
    affects=Affects(flags=("-c", "-n", "-cram", "-b", "-ub")),
    provenance=Provenance(builds="seen on 10068, 10092 and 10434", command="-c 64K"),
    related=("number-out-of-range",),
)
_TOKENS = ("-c", "-n", "-b", "-ub", "-cms", "--cache-reuse", "-fitc")
_OTHERS = ("-np", "-ngl", "-ncmoe", "-ctxcp", "-t", "-tb", "--port")
_MIB = ("-cram",)
_CUT = re.compile(r"\s*([+-]?\d+)([A-Za-z_,.'][\w,.']*)\Z")
_UNIT = re.compile(r"([kmg])(?:i?b)?\Z", re.IGNORECASE)
_THOUSANDS = re.compile(r"(?:[_,.']\d{3})+\Z")
_TIMES = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def detect(facts: Facts) -> Iterator[Found]:
    for name in (*_TOKENS, *_OTHERS, *_MIB):
        value = facts.command.value(name)
        match = _CUT.match(value or "")
        if match is None:
            continue
        meant = _meant(name, match[1], match[2])
        yield Found(
            because=f"{name} {value} is read as {match[1]}",
            edit=(Edit(flag=name, value=str(meant)),) if meant is not None else (),
            flag=name,
        )


def _meant(name: str, digits: str, rest: str) -> int | None:
    """The whole number that a person means by it; None if that is not clear."""
    if _THOUSANDS.match(rest):
        return int(digits + re.sub(r"\D", "", rest))
    unit = _UNIT.match(rest)
    if unit is None or name in _OTHERS:
        return None
    number = int(digits) * _TIMES[unit[1].lower()]
    if name in _MIB:
        return number >> 20 if number >= 1 << 20 else None
    return number


_RUN = EngineRun(flags="-c 2K -np 1 --no-warmup")

REPRODUCTIONS = (
    Reproduction(
        name="context",
        model=tiny("llama"),
        run=_RUN,
        control=replace(_RUN, flags="-c 2048 -np 1 --no-warmup"),
        shows=Signature(effective={"n_ctx": 256}),
    ),
)
