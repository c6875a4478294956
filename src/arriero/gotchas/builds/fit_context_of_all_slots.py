"""Since about b11000 a context that nobody gave is the model's own for every slot

Symptom
-------
Without `-c` and `-np` the KV cache takes four times as much as before the update. It fits, and the
desktop or other programs have no memory left.

Root cause
----------
`--fit` looks for the longest context that fits. Since ggml-org/llama.cpp#28849 (September 2026) it
tries the training context once for each slot of a shared cache, and the server chooses four slots.
On unified memory that is taken from everything else.

Workaround
----------
`-c` with what is needed, or `-np 1`.

Better fix
----------
Debated by the maintainers.
"""

from __future__ import annotations

from collections.abc import Iterator

from arriero.command import ModelSource
from arriero.gotchas.builds._range import told
from arriero.gotchas.facts import Facts
from arriero.gotchas.model import (
    Affects,
    Applies,
    Class,
    Found,
    Gotcha,
    Provenance,
    Severity,
)

GOTCHA = Gotcha(
    updated="2026-12-01",
    kind=Class.FRAMEWORK,
    severity=Severity.INFO,
    concepts=("fit", "context", "slots"),
    affects=Affects(flags=("-c", "-np", "--fit")),
    reporters=3,
    provenance=Provenance(
        issues=("ggml-org/llama.cpp#28849",),
        builds="after it was merged, about b11000",
        hardware="any, unified memory above all",
        command="neither -c nor -np",
    ),
    related=("context-left-to-model",),
)


def detect(facts: Facts) -> Iterator[Found]:
    command = facts.command
    if command.has("-c") or command.has("-np") or not facts.launch.fit:
        return
    if command.model_source()[0] is ModelSource.ROUTER or facts.launch.params.embeddings:
        return
    if facts.build is not None and facts.build >= _FIRST:
        yield Found(
            because=f"neither -c nor -np, {told(facts)}: fit may take the model's own four times",
            applies=Applies.MAYBE,
            missing=("whether this build is from after the change",),
        )


_FIRST = 11000
