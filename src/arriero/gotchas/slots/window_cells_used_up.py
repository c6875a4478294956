"""In builds of summer 2025 the slots of a sliding-window model run out of window cells

Symptom
-------
`failed to find a memory slot for batch of size 1024`, `failed to find free space in the KV cache,
retrying with smaller batch size`, with several clients and a context that is far from full. The
reports are about Gemma 3.

Root cause
----------
Layers with a window have a cache of their own, as long as the window and a micro-batch. In these
builds all slots shared it, and it was too short for several of them at once. In other builds the
messages mean that the context itself is full.

Workaround
----------
Set `--swa-full` to make that cache as long as the context, at the cost of its size, or use a newer
build. If the context is full, set a larger `-c` or use fewer slots.

Better fix
----------
Newer builds have the fix: the cache has room for the windows of all slots.
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
    concepts=("slots", "sliding window", "KV cache"),
    affects=Affects(flags=("-np", "--swa-full")),
    signs=(
        Sign(text=r"failed to find a memory slot|failed to find free space", builds=(5600, 6200)),
    ),
    reporters=2,
    provenance=Provenance(
        issues=("ggml-org/llama.cpp#14097", "ggml-org/llama.cpp#14938"),
        builds="b56xx",
        hardware="any",
        command="Gemma 3 with -np N",
    ),
    related=("slot-context-share", "swa-full-cache"),
)


def detect(facts: Facts) -> Iterator[Found]:
    slots = facts.launch.params.n_seq_max
    if slots < 2 or facts.launch.params.swa_full or not within(facts, 5600, 6200):
        return
    if any(facts.hparams.is_swa):
        yield Found(
            because=f"{slots} slots share one window's cache in {told(facts)}",
            applies=Applies.MAYBE,
            missing=("which build was the first with room for all slots",),
            flag="-np",
        )
