"""A worker on a CPU takes more memory when it computes; if it dies of that, the server dies too

Symptom
-------
The server is ready. Its first prompt, or the first long one, kills it with SIGABRT (exit status
134): `Remote RPC server crashed or returned malformed response`, often after `recv failed
(bytes_recv=0`. On the worker: `terminate called after throwing an instance of 'std::bad_alloc'`.

Root cause
----------
The weights, the KV cache and the compute buffer of a worker are allocated at the start. The memory
in which its CPU works is not: inputs of a matrix product in the type of the weights, up to a
micro-batch of rows as wide as the feed-forward layer, are allocated with the first graph that needs
them. If the worker has no room left for them, it dies. The server cannot continue without a worker,
whatever killed it: the next request that needs it aborts, and until then `/health` says `ok`.

Workaround
----------
Set a smaller `-ub`: the compute buffer and the work memory both grow with it. Or give the worker a
smaller share of the layers (`-ts`). A supervisor must restart the worker and then the server, in
that order.

Better fix
----------
Allocate the work memory with the graph. When a worker is gone, let requests fail instead of the
server.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import replace

from arriero.base.sizes import MIB, human
from arriero.base.words import Kind, TrialOutcome
from arriero.gguf.presets import tiny
from arriero.gotchas.facts import Facts
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
from arriero.record import Edit

GOTCHA = Gotcha(
    kind=Class.BACKEND,
    severity=Severity.ERROR,
    updated="2026-11-30",
    concepts=("RPC", "workers", "compute"),
    affects=Affects(backends=("RPC",), flags=("--rpc", "-ub", "-ts")),
    log=("Remote RPC server crashed or returned malformed response", "recv failed (bytes_recv=0"),
    signs=(
        Sign(kinds=(Kind.RPC,), text=r"Remote RPC server crashed|(?:send|recv) failed|aborts here"),
    ),
    provenance=Provenance(
        builds="seen on 10068, 10092 and 10434",
        hardware="a worker on a CPU, its address space limited",
        command="--rpc 127.0.0.1:50052 -ub 512",
    ),
    related=("rpc-prompt-cache-abort", "rpc-worker-memory", "rpc-worker-unused"),
)
_INPUT = 2
"""Bytes of one number of an input, with f16 weights."""
_LEAST = 32


def detect(facts: Facts) -> Iterator[Found]:
    remote = [pool.name for pool in facts.pools if pool.name.startswith("RPC")]
    if not endpoints(facts) or not remote:
        return
    wanted = _work(facts)
    for name, left in _left(facts, remote).items():
        if 0 <= left < wanted:
            yield Found(
                because=f"{name} has {human(left)} left at the start; its CPU needs up to"
                f" {human(wanted)} more to work (-ub {facts.launch.params.n_ubatch})",
                applies=Applies.MAYBE,
                missing=("whether this worker computes on its CPU",),
                edit=_smaller(facts, remote),
                flag="--rpc",
            )


def _work(facts: Facts) -> int:
    """Bytes of the widest input of a matrix product, for a whole micro-batch."""
    params = facts.launch.params
    return min(params.n_batch, params.n_ubatch) * max(facts.hparams.n_ff) * _INPUT


def _left(facts: Facts, remote: list[str]) -> dict[str, int]:
    pools = [pool for pool in facts.plan.pools if pool.name in remote and pool.at_start]
    return {pool.name: pool.free - pool.at_start for pool in pools if pool.free is not None}


def _smaller(facts: Facts, remote: list[str]) -> tuple[Edit, ...]:
    """Halve the micro-batch until every worker has room to work; empty if none helps."""
    tokens = facts.launch.params.n_ubatch
    while tokens > _LEAST:
        tokens //= 2
        edits = (Edit(flag="-ub", value=str(tokens)),)
        changed = facts.with_edits(edits)
        if all(left >= _work(changed) for left in _left(changed, remote).values()):
            return edits
    return ()


_FLAGS = "-c 2048 -np 1 -ngl 99 --no-warmup -cram 0 -fit off --rpc {workers}"
_RUN = EngineRun(flags=f"{_FLAGS} -ub 512", workers=(Worker(room=370 * MIB),))
"""The compute buffer takes 362 MiB more for 512 tokens than for 32, so little is left."""

REPRODUCTIONS = (
    Reproduction(
        name="no-room-to-work",
        model=tiny("llama", layers=2, embedding=64, feed_forward=65536, name="wide-feed-forward"),
        run=_RUN,
        control=replace(_RUN, flags=f"{_FLAGS} -ub 32"),
        shows=Signature(outcome=TrialOutcome.READY, kind=Kind.RPC, exit_status=-signal.SIGABRT),
        needs=(Needs.RPC_SERVER, Needs.ADDRESS_SPACE),
    ),
)
