"""Builds of early 2026 load the draft model of a hybrid model but do not draft with it

Symptom
-------
The log says `the target context does not support partial sequence removal` and `speculative
decoding not supported by this context`. The server serves without drafting, but the draft model has
taken its memory.

Root cause
----------
The server must roll back rejected tokens, and these builds could not roll back recurrent state.
Since about b9130 the engine keeps copies of the state for that.

Workaround
----------
Use a newer build with `--spec-type draft-mtp`, if the model has the layers for it. Or leave `-md`
out.

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
    concepts=("speculative decoding", "recurrent state"),
    affects=Affects(flags=("-md", "--spec-type")),
    signs=(
        Sign(
            notice="option_dropped", text=r"speculative decoding not supported by this", sure=True
        ),
    ),
    reporters=1,
    provenance=Provenance(
        issues=("ggml-org/llama.cpp#20153",), builds="b82xx", hardware="CUDA", command="-md draft"
    ),
    related=("rs-rollback-copies",),
)


def detect(facts: Facts) -> Iterator[Found]:
    drafts = facts.launch.draft_model is not None
    if drafts and within(facts, 0, 9129) and any(facts.hparams.is_recurrent):
        yield Found(
            because=f"-md for a model with recurrent layers, {told(facts)}: it may not draft",
            applies=Applies.MAYBE,
            missing=("which build was the first that rolls recurrent state back",),
            flag="-md",
        )
