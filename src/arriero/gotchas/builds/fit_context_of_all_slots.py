"""Since about b11000, `--fit` without `-c` and `-np` plans the training context for every slot

Symptom
-------
Without `-c` and `-np` the KV cache takes four times as much as before the update. The server
starts, but the desktop or other programs have no memory left.

Root cause
----------
`--fit` looks for the longest context that fits. Since ggml-org/llama.cpp#28849 (September 2026) it
tries the training context once for each slot of a unified cache, and the server chooses four slots.
On unified memory this comes out of the memory of all other programs.

Workaround
----------
Set `-c` to the tokens that you need, or set `-np 1`.

Better fix
----------
The maintainers are discussing it.
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
    launch = facts.launch
    if launch.context_asked is not None or launch.slots.given or not launch.fit:
        return
    if facts.command.model_source()[0] is ModelSource.ROUTER or launch.params.embeddings:
        return
    if facts.build is not None and facts.build >= _FIRST:
        yield Found(
            because="neither -c nor -np is given: --fit of"
            f" {told(facts)} may plan the model's own context four times",
            applies=Applies.MAYBE,
            missing=("whether this build has the change",),
        )


_FIRST = 11000
