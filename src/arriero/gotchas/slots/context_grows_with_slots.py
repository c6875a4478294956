"""Every slot gets at least 256 tokens, so many slots make the context larger than requested

Symptom
-------
`-c 4096 -np 64` takes the memory of 16384 tokens. The log says that n_ctx is rounded *down* to a
number that is larger than the requested one.

Root cause
----------
Without a unified KV cache the slots share `-c`, and each share is rounded up to a multiple of 256
tokens. With more than `-c / 256` slots, the shares add up to more than the whole.

Workaround
----------
Use fewer slots, or `-kvu`: one cache of the requested size for all slots.

Better fix
----------
llama.cpp could say what it takes and why, or refuse more slots than the context has shares.
"""

from __future__ import annotations

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
    edits_of,
)
from arriero.launch import edits
from arriero.launch.context import PAD, context

GOTCHA = Gotcha(
    kind=Class.FRAMEWORK,
    severity=Severity.WARNING,
    updated="2026-11-30",
    concepts=("slots", "context", "KV cache"),
    affects=Affects(flags=("-c", "-np", "-kvu")),
    log=("n_ctx is not divisible by n_seq_max - rounding down to",),
    provenance=Provenance(builds="seen on 10068 and 10434", command="-c 4096 -np 64"),
)


def detect(facts: Facts) -> Iterator[Found]:
    params, asked = facts.launch.params, facts.launch.context_asked
    if not asked or asked < 0 or params.kv_unified:
        return
    made = context(asked, params.n_seq_max, unified=False)
    if made.n_ctx_seq > PAD or made.n_ctx < 2 * asked:
        return
    yield Found(
        because=f"-c {asked} for {params.n_seq_max} slots becomes {made.n_ctx} tokens,"
        f" {made.n_ctx_seq} for each slot",
        edit=edits_of(edits.slots(facts.command, max(1, asked // PAD))),
        flag="-np",
    )


_RUN = EngineRun(flags="-c 1024 -np 16 --no-warmup")

REPRODUCTIONS = (
    Reproduction(
        name="sixteen",
        model=tiny("llama"),
        run=_RUN,
        control=replace(_RUN, flags="-c 1024 -np 4 --no-warmup"),
        shows=Signature(effective={"n_ctx": 4096, "n_ctx_seq": 256}),
    ),
)
