"""The size that Vulkan failed to allocate is one chunk of a buffer, not the missing amount

Symptom
-------
`ggml_vulkan: Device memory allocation of size 1073741824 failed`, `alloc_tensor_range: failed to
allocate Vulkan0 buffer of size 1073741824`, `failed to allocate buffer for kv cache`. Freeing that
much does not help, and nothing in the model has that size.

Root cause
----------
Vulkan cuts weights, KV cache and recurrent state into chunks of whole tensors. Each chunk is at
most one allocation block (`GGML_VK_SUBALLOCATION_BLOCK_SIZE`, 1 GiB by default) or the device's own
maximum. The message names the chunk that failed; the chunks before it succeeded, and those after it
were never requested. The whole size is printed only at the end, when everything is allocated. A
compute buffer is different: its error also says the whole size.

Workaround
----------
Find out what the command needs (`arriero plan`) and reduce it: a smaller `-c`, fewer slots, a
quantised KV cache, or fewer layers on the device (leave `-ngl` to `--fit`).

Better fix
----------
Print the whole size, and how much of it was allocated, with the error.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from arriero.base.sizes import GIB, MIB, human
from arriero.base.words import Component, Kind
from arriero.gguf import Shape
from arriero.gotchas.facts import Facts, certain
from arriero.gotchas.model import (
    STEADY,
    Affects,
    Applies,
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
from arriero.record import Edit, Plan

GOTCHA = Gotcha(
    kind=Class.BACKEND,
    severity=Severity.ERROR,
    updated="2026-11-30",
    concepts=("Vulkan", "KV cache", "allocation"),
    affects=Affects(backends=("Vulkan",), flags=("-c", "-np", "-ngl")),
    log=("ggml_vulkan: Device memory allocation of size", "alloc_tensor_range: failed to allocate"),
    signs=(
        Sign(
            kinds=(Kind.ALLOCATION,),
            components=(Component.WEIGHTS, Component.KV, Component.RS),
            device="Vulkan",
        ),
    ),
    provenance=Provenance(
        builds="seen on 10068, 10092 and 10434",
        hardware="lavapipe, address space limited",
        command="-dev Vulkan0 -ngl 99 -fit off",
    ),
    related=("vulkan-tensor-limit", "rpc-prompt-cache-abort"),
)
_VARIABLE = "GGML_VK_SUBALLOCATION_BLOCK_SIZE"
_CUT = (Component.WEIGHTS, Component.KV, Component.RS)
_LEAST = 512


def detect(facts: Facts) -> Iterator[Found]:
    vulkan = [pool.name for pool in facts.pools if pool.name.startswith("Vulkan")]
    if not vulkan or facts.launch.params.n_gpu_layers == 0:
        return
    given = facts.command.environ.get(_VARIABLE, "")
    block = int(given) if given.isdecimal() else GIB
    plan = facts.plan
    for pool in plan.pools:
        if pool.name not in vulkan or pool.free is None or pool.at_start <= pool.free:
            continue
        parts = (b for b in plan.buffers if b.device == pool.name and b.component in _CUT)
        cut = max(parts, key=lambda b: b.bytes or 0, default=None)
        if cut is None or (cut.bytes or 0) <= block:
            continue
        sure = certain(plan, pool.name) > pool.free
        yield Found(
            because=f"{pool.name} must hold {human(pool.at_start)} but has {human(pool.free)};"
            f" {cut.component.value} of {human(cut.bytes or 0)} is allocated in chunks of at most"
            f" {human(block)}, and the error will name only one",
            applies=Applies.YES if sure else Applies.MAYBE,
            missing=()
            if sure
            else ("the compute buffer, which is only a bound without the engine",),
            edit=_smaller(facts, plan, pool.name),
            flag="-c",
        )


def _smaller(facts: Facts, plan: Plan, name: str) -> tuple[Edit, ...]:
    """Halve the context until the device holds it; empty if none helps."""
    tokens = plan.context.n_ctx if plan.context else 0
    while tokens > _LEAST:
        tokens //= 2
        edits = (Edit(flag="-c", value=str(tokens)),)
        changed = facts.plan_of(facts.with_edits(edits).command)
        if all(p.free is None or p.at_start <= p.free for p in changed.pools if p.name == name):
            return edits
    return ()


_WIDE = Shape(
    arch="llama", name="long-cache-of-8", layers=8, embedding=32, heads=4, heads_kv=4,
    head_dim=128, feed_forward=32, context_train=1 << 20,
)  # fmt: skip
"""2 KiB of KV per layer and token: 2 GiB for 131,072 tokens, in tensors of 128 MiB."""
_ENV = STEADY | {"GGML_VK_VISIBLE_DEVICES": "0", _VARIABLE: str(128 * MIB)}
_FLAGS = "-np 1 -ngl 99 -dev Vulkan0 -fit off --no-warmup --threads-http 2"
_RUN = EngineRun(flags=f"-c 131072 {_FLAGS}", env=_ENV, above=f"-c 512 {_FLAGS}", limit=300 * MIB)

REPRODUCTIONS = (
    Reproduction(
        name="one-of-sixteen",
        model=_WIDE,
        weights="zeros",
        run=_RUN,
        control=replace(_RUN, flags=f"-c 512 {_FLAGS}"),
        shows=Signature(
            kind=Kind.ALLOCATION,
            component=Component.KV,
            log=r"failed to allocate Vulkan0 buffer of size 134217728\b",
        ),
        needs=(Needs.VULKAN, Needs.ADDRESS_SPACE),
    ),
)
