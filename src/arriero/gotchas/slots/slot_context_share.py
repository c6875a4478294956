"""A request gets one slot's share of the context, not all of `-c`

Symptom
-------
With `-c 8192 -np 4` a prompt of 2100 tokens is refused with status 400: `request (2100 tokens)
exceeds the available context size (2048 tokens), try increasing it`. Or an answer is cut off long
before `-n` tokens.

Root cause
----------
`-c` is for all slots together. If the command sets a number of slots, each slot gets an equal part
for itself and cannot use what the others leave free. Without `-np` the four slots that the server
makes share one cache, and each may use all of it. So adding `-np 4` to a command that worked
divides its context by four.

Workaround
----------
Add `-kvu`: one cache for all slots, of the same size. Long requests at the same time can then fill
it and fail together. If each slot must always have the full context, multiply `-c` by the number of
slots; it takes that much more memory.

Better fix
----------
Newer builds have `--kv-unified-per-slot`, which sets what one slot gets.
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
    Sign,
    Signature,
)
from arriero.launch.context import context
from arriero.record import Edit

GOTCHA = Gotcha(
    kind=Class.CONFIGURATION,
    severity=Severity.INFO,
    updated="2026-11-30",
    concepts=("slots", "context"),
    affects=Affects(flags=("-c", "-np", "-kvu", "-n")),
    log=("exceeds the available context size", "exceed_context_size_error"),
    signs=(Sign(text=r"exceeds the available context size|ontext size has been exceeded"),),
    reporters=2,
    provenance=Provenance(
        issues=("ggml-org/llama.cpp#11681", "ggml-org/llama.cpp#17767"),
        builds="b4621",
        command="--ctx-size 163840 --parallel 6",
    ),
    related=("context-grows-with-slots",),
)


def detect(facts: Facts) -> Iterator[Found]:
    params, asked = facts.launch.params, facts.launch.context_asked or 0
    slots = params.n_seq_max
    if asked <= 0 or slots < 2 or params.kv_unified:
        return
    made = context(asked, slots, unified=False)
    if made.n_ctx >= 2 * asked:  # context-grows-with-slots tells that
        return
    share = f"{slots} slots share -c {asked}: a prompt and its answer get {made.n_ctx_seq} tokens"
    answer = facts.command.number("-n") or 0
    if answer < made.n_ctx_seq:
        yield Found(because=share, flag="-np")
    else:
        yield Found(
            because=f"{share}, but -n {answer} allows a longer answer",
            severity=Severity.WARNING,
            edit=(Edit(flag="-kvu", value="on"),),
            flag="-np",
        )


_RUN = EngineRun(flags="-c 8192 -np 4 --no-warmup")

REPRODUCTIONS = (
    Reproduction(
        name="four",
        model=tiny("llama"),
        run=_RUN,
        control=replace(_RUN, flags="-c 8192 -np 4 -kvu --no-warmup"),
        shows=Signature(effective={"n_ctx": 8192, "n_ctx_seq": 2048}),
    ),
)
