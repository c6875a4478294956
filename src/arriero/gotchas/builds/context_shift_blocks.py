"""Builds around 6940 answer a new conversation with `context shift is disabled`

Symptom
-------
The first conversation works. The second one in the same slot gets the error `context shift is
disabled`, although it is short.

Root cause
----------
A change of 30 October 2025 (ggml-org/llama.cpp#16818) added the tokens that the slot had held
before to the length of the new prompt. It was fixed in November 2025. In other builds the message
means what it says: the slot's context is full.

Workaround
----------
Use a newer build. If the context is really full, set a larger `-c` or let the client shorten its
history.

Better fix
----------
Newer builds have the fix.
"""

from __future__ import annotations

from collections.abc import Iterator

from arriero.gotchas.builds._range import told, within
from arriero.gotchas.facts import Facts
from arriero.gotchas.model import (
    Affects,
    Applies,
    Class,
    Found,
    Gotcha,
    Provenance,
    Severity,
    Sign,
)

GOTCHA = Gotcha(
    updated="2026-12-01",
    kind=Class.FRAMEWORK,
    severity=Severity.INFO,
    concepts=("context", "slots"),
    affects=Affects(flags=("-c", "--context-shift")),
    signs=(Sign(text=r"ontext shift is disabled", builds=(6880, 7000)),),
    reporters=1,
    provenance=Provenance(
        issues=("ggml-org/llama.cpp#16983", "ggml-org/llama.cpp#16818"),
        builds="b6940; from 30 October 2025 to November 2025",
        hardware="any",
        command="any",
    ),
)


def detect(facts: Facts) -> Iterator[Found]:
    if within(facts, 6880, 7000) and facts.command.switch("--context-shift") is not True:
        yield Found(
            because=f"{told(facts)} is one of those that may refuse a second conversation",
            applies=Applies.MAYBE,
            missing=("which build of November 2025 was the first with the fix",),
        )
