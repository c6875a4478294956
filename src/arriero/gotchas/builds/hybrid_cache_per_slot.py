"""Before b8016 a hybrid model got a KV cache for each slot although the cache was to be unified

Symptom
-------
With the four slots that the server chose by itself, the KV cache of a hybrid model takes four times
the computed size and does not fit.

Root cause
----------
A unified cache is one cache for all slots. For hybrid models, these builds nevertheless gave each
slot the whole context (ggml-org/llama.cpp#19552, fixed by #19559 on 12 February 2026).

Workaround
----------
Set `-np 1`, or use build 8016 or newer.

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
)

GOTCHA = Gotcha(
    updated="2026-12-01",
    kind=Class.FRAMEWORK,
    severity=Severity.INFO,
    concepts=("slots", "KV cache", "hybrid"),
    affects=Affects(flags=("-np", "-kvu")),
    reporters=2,
    provenance=Provenance(
        issues=("ggml-org/llama.cpp#19552", "ggml-org/llama.cpp#19559"),
        builds="before about b8016",
        hardware="any",
        command="-np 4, qwen3next",
    ),
    related=("rs-alloc-slots",),
)


def detect(facts: Facts) -> Iterator[Found]:
    slots = facts.launch.params.n_seq_max
    if slots < 2 or not facts.launch.params.kv_unified or not within(facts, 6930, 8015):
        return
    recurrent = facts.hparams.is_recurrent
    if any(recurrent) and not all(recurrent):
        yield Found(
            because=f"{slots} slots of a hybrid model share one cache; {told(facts)} makes {slots}",
            applies=Applies.MAYBE,
            missing=("which build of February 2026 was the first with the fix",),
            flag="-np",
        )
