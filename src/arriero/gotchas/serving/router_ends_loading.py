"""A router in builds before #25528 kills a model that is still loading

Symptom
-------
`force-killing model instance name=... after 10 seconds timeout`. Switching models fails now and
then, more often with large ones.

Root cause
----------
The router tells the least recently used model to end through its input, which a server reads only
after it has loaded. A model that is evicted while it loads does not get the message and is killed
after ten seconds (ggml-org/llama.cpp#25528).

Workaround
----------
Use a newer build. Or wait until a model answers before you ask for the next one, and set
`--models-max` high enough for all models that are requested.

Better fix
----------
Newer builds have the fix: they read the input from the start.
"""

from __future__ import annotations

from collections.abc import Iterator

from arriero.command import ModelSource
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
    concepts=("router",),
    affects=Affects(flags=("--models-max",)),
    signs=(Sign(text=r"force-killing model instance", sure=True),),
    reporters=1,
    provenance=Provenance(
        issues=("ggml-org/llama.cpp#25528",),
        builds="b99xx",
        hardware="any",
        command="--models-max 1",
    ),
    related=("router-keeps-models",),
)


def detect(facts: Facts) -> Iterator[Found]:
    if facts.command.model_source()[0] is not ModelSource.ROUTER or not within(facts, 0, 9950):
        return
    if facts.command.number("--models-max") == 1:
        yield Found(
            because=f"--models-max 1 with {told(facts)}: the next model ends one that is loading",
            applies=Applies.MAYBE,
            missing=("which build was the first with the fix",),
            flag="--models-max",
        )
