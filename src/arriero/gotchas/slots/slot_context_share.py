"""A request gets one slot's share of the context, not all of `-c`

Symptom
-------
`-c 8192 -np 4`, and a prompt of 2100 tokens is refused with status 400: `request (2100 tokens)
exceeds the available context size (2048 tokens), try increasing it`. Or an answer is cut off long
before `-n` tokens.

Root cause
----------
`-c` is for all slots together. With a number of slots on the command line each of them gets an
equal part for itself, and nothing of what the others leave free. Without `-np` the four slots that
the server makes share one cache, and each may use all of it: adding `-np 4` to a command that was
fine divides its context by four.

Workaround
----------
`-kvu`: one cache for all slots, of the same size. Long requests at the same time can then use it
up, and fail together. Where each slot must always have its context, `-c` times the number of slots,
and the memory for it.

Better fix
----------
Newer builds have `--kv-unified-per-slot`, which says what one slot gets.
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
    request, asked = facts.launch.params, facts.command.number("-c") or 0
    slots = request.n_seq_max
    if asked <= 0 or slots < 2 or request.kv_unified:
        return
    made = context(asked, slots, unified=False)
    if made.n_ctx >= 2 * asked:  # then the context is not what was asked for in the first place
        return
    share = f"{slots} slots share -c {asked}: a prompt with its answer has {made.n_ctx_seq} tokens"
    answer = facts.command.number("-n") or 0
    if answer < made.n_ctx_seq:
        yield Found(because=share, flag="-np")
    else:
        yield Found(
            because=f"{share}, and -n {answer} asks for an answer longer than that",
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
