"""Without flash attention the scores of a whole micro-batch are in memory at once

Symptom
-------
Weights and KV cache are placed, then `failed to allocate compute buffers` for many GiB, although
the same context starts elsewhere. With Vulkan it also happens when there is enough memory: a single
buffer is larger than the driver allows.

Root cause
----------
Plain attention writes an f32 score for each head, each token of the micro-batch and each cell of
the slot's context before it sums them up: 4 × heads × `-ub` × context bytes. Flash attention never
stores them. `-fa off` turns flash attention off; under `-fa auto` it is also off if a device does
not support the model's head size.

Workaround
----------
Leave out `-fa off`. If flash attention is not available, set a smaller `-ub`: the scores shrink in
proportion.

Better fix
----------
Show the size of the scores before they are allocated (`arriero plan` does).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from arriero.base.sizes import MIB, human
from arriero.base.words import Component, Kind
from arriero.gguf.presets import tiny
from arriero.gotchas.facts import Facts, certain
from arriero.gotchas.memory._pools import holds, known
from arriero.gotchas.model import (
    Affects,
    Class,
    EngineRun,
    Found,
    Gotcha,
    Needs,
    Provenance,
    Reproduction,
    Severity,
    Sign,
    Signature,
)
from arriero.record import Edit

GOTCHA = Gotcha(
    kind=Class.CONFIGURATION,
    severity=Severity.ERROR,
    updated="2026-11-30",
    concepts=("flash attention", "micro-batch", "compute buffer"),
    affects=Affects(flags=("-fa", "-ub", "-c")),
    log=("failed to allocate compute buffers", "failed to allocate compute pp buffers"),
    signs=(
        Sign(
            kinds=(Kind.ALLOCATION, Kind.BUFFER_LIMIT),
            components=(Component.COMPUTE,),
        ),
    ),
    reporters=2,
    provenance=Provenance(
        issues=(
            "ggml-org/llama.cpp#10251",
            "ggml-org/llama.cpp#15009",
        ),
        builds="b3987 and about b6050",
        hardware="CPU, Vulkan",
        command="-c 70000, -ub 6500",
    ),
)


def detect(facts: Facts) -> Iterator[Found]:
    params = facts.launch.params
    if params.flash_attn != "off" or params.type_v not in _PLAIN:
        return
    plan, h = facts.plan, facts.hparams
    context = plan.context
    attends = [not (r or s) for r, s in zip(h.is_recurrent, h.is_swa, strict=True)]
    heads = max((n for n, yes in zip(h.n_head, attends, strict=True) if yes), default=0)
    if context is None or not heads:
        return
    tokens = min(params.n_ubatch, params.n_batch, context.n_ctx)
    scores = 4 * heads * tokens * context.n_ctx_seq
    for pool, free in known(plan):
        if holds(plan, pool, Component.KV) and certain(plan, pool.name) + scores > free:
            yield Found(
                because=f"-fa off: scores of {heads} heads × {tokens} tokens ×"
                f" {context.n_ctx_seq} cells take {human(scores)}; {pool.name} has {human(free)}",
                edit=(Edit(flag="-fa", value="auto"),),
                flag="-fa",
            )
            return


_PLAIN = ("f32", "f16", "bf16")
"""Other types are refused without flash attention, which is another gotcha."""
_QUIET = "--no-warmup --threads-http 2"
_LONG = f"-c 32768 -np 1 -ub 2048 {_QUIET}"
_RUN = EngineRun(flags=f"{_LONG} -fa off", above=_LONG, limit=512 * MIB)

REPRODUCTIONS = (
    Reproduction(
        name="long-context",
        model=tiny("llama"),
        run=_RUN,
        control=replace(_RUN, flags=_LONG),
        shows=Signature(
            kind=Kind.ALLOCATION,
            component=Component.COMPUTE,
            log=r"failed to allocate compute (pp )?buffers",
        ),
        needs=(Needs.ADDRESS_SPACE,),
    ),
)
