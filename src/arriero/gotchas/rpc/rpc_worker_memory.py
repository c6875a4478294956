"""A worker that computes on its CPU reports all memory as free, but takes only what really fits

Symptom
-------
`alloc_tensor_range: failed to allocate RPC0[host:port] buffer of size ...`, then `failed to
allocate buffer for kv cache` and `failed to create_context`, exit status 1 (a crash in older
builds). The line before may say that the worker has many GiB free.

Root cause
----------
`using device RPC0 (host:port) ... MiB free` shows what the worker reports. A worker without a card
reports its machine's total, whatever else runs there and whatever limit it was started with.
`--fit` and the shares of layers trust this number. Only when the worker is asked for the buffer
does it turn out not to fit.

Workaround
----------
Set `-ts` according to the memory that the workers really have, or set a smaller `-c`: each worker
holds the KV cache of its own layers.

Better fix
----------
Report the available memory and the worker's own limits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from arriero.base.sizes import MIB, human
from arriero.base.words import Kind, TrialOutcome
from arriero.gguf.presets import tiny
from arriero.gotchas.facts import Facts, certain
from arriero.gotchas.model import (
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
    Worker,
)
from arriero.gotchas.rpc._workers import endpoints
from arriero.record import Edit, Plan

GOTCHA = Gotcha(
    kind=Class.BACKEND,
    severity=Severity.ERROR,
    updated="2026-11-30",
    concepts=("RPC", "workers", "fit", "KV cache"),
    affects=Affects(backends=("RPC",), flags=("--rpc", "-c", "-ts")),
    log=("alloc_tensor_range: failed to allocate RPC",),
    signs=(Sign(kinds=(Kind.ALLOCATION,), device="RPC", sure=True),),
    provenance=Provenance(
        issues=("ggml-org/llama.cpp#23858", "ggml-org/llama.cpp#11435"),
        builds="b9389, b4561; a limited worker said 24105 MiB, its machine's, on 10068 and 10434",
        hardware="two AI Max+ 395 (ROCm) over RPC; three CUDA cards over RPC",
        command="--rpc 10.0.0.2:50052",
    ),
    related=("rpc-split-skips-local", "rpc-prompt-cache-abort"),
)
_LEAST = 512


def detect(facts: Facts) -> Iterator[Found]:
    if not endpoints(facts) or not any(_remote(pool.name) for pool in facts.pools):
        return
    plan = facts.plan
    for pool in plan.pools:
        if not _remote(pool.name) or pool.free is None or pool.at_start <= pool.free:
            continue
        sure = certain(plan, pool.name) > pool.free
        yield Found(
            because=f"{pool.name} must hold {human(pool.at_start)} at the start but has"
            f" {human(pool.free)}",
            applies=Applies.YES if sure else Applies.MAYBE,
            missing=() if sure else ("the worker's compute buffer, which is only a bound",),
            edit=_smaller(facts, plan),
            flag="--rpc",
        )


def _remote(pool: str) -> bool:
    return pool.startswith("RPC")


def _smaller(facts: Facts, plan: Plan) -> tuple[Edit, ...]:
    """Halve the context until every worker holds it; empty if none helps."""
    tokens = plan.context.n_ctx if plan.context else 0
    while tokens > _LEAST:
        tokens //= 2
        edits = (Edit(flag="-c", value=str(tokens)),)
        changed = facts.plan_of(facts.with_edits(edits).command)
        if all(p.free is None or p.at_start <= p.free for p in changed.pools if _remote(p.name)):
            return edits
    return ()


_RUN = EngineRun(
    flags="-c 32768 -np 1 -ngl 99 --no-warmup -cram 0 -fit off --rpc {workers}",
    workers=(Worker(room=32 * MIB),),
)

REPRODUCTIONS = (
    Reproduction(
        name="limited",
        model=tiny("llama", layers=2, heads=16, heads_kv=16, head_dim=128, name="wide-heads"),
        run=_RUN,
        control=replace(_RUN, flags=_RUN.flags.replace("32768", "2048")),
        shows=Signature(
            outcome=TrialOutcome.FAILED, log=r"failed to allocate RPC\d+\[.*\] buffer of size"
        ),
        needs=(Needs.RPC_SERVER, Needs.ADDRESS_SPACE),
    ),
)
