"""A worker on a CPU takes memory as it computes; one that ends for it takes the server along

Symptom
-------
The server is ready, and its first prompt, or the first long one, ends it with SIGABRT (exit 134):
`Remote RPC server crashed or returned malformed response`, often after `recv failed
(bytes_recv=0`. On the worker: `terminate called after throwing an instance of 'std::bad_alloc'`.

Root cause
----------
Weights, KV cache and compute buffer of a worker are reserved at the start. What its CPU works with
is not: inputs of a matrix product in the type of the weights, up to a micro-batch of rows as wide
as the feed-forward layer, are allocated with the first graph that needs them. A worker that has no
room left for that ends. The server cannot go on without one, whatever ended it: the next request
that needs it aborts, and until then `/health` says `ok`.

Workaround
----------
A smaller `-ub`, which compute buffer and work memory both grow with, or a share of layers (`-ts`)
that leaves the worker some. Something must start worker and server again, in that order.

Better fix
----------
Reserve the work memory with the graph; let requests fail, not the server, when a worker is gone.
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
"""Bytes of one number of an input beside f16 weights."""
_LEAST = 32


def detect(facts: Facts) -> Iterator[Found]:
    remote = [pool.name for pool in facts.pools if pool.name.startswith("RPC")]
    if not endpoints(facts) or not remote:
        return
    wanted = _work(facts)
    for name, left in _left(facts, remote).items():
        if 0 <= left < wanted:
            yield Found(
                because=f"{name} has {human(left)} left at the start; its CPU works with up to"
                f" {human(wanted)} more (-ub {facts.launch.params.n_ubatch})",
                applies=Applies.MAYBE,
                missing=("whether this worker computes on its CPU",),
                edit=_smaller(facts, remote),
                flag="--rpc",
            )


def _work(facts: Facts) -> int:
    """Bytes of the widest input of a matrix product, for a whole micro-batch."""
    request = facts.launch.params
    return min(request.n_batch, request.n_ubatch) * max(facts.hparams.n_ff) * _INPUT


def _left(facts: Facts, remote: list[str]) -> dict[str, int]:
    pools = [pool for pool in facts.plan.pools if pool.name in remote and pool.at_start]
    return {pool.name: pool.free - pool.at_start for pool in pools if pool.free is not None}


def _smaller(facts: Facts, remote: list[str]) -> tuple[Edit, ...]:
    """The largest micro-batch, of halves of what it is now, that leaves room to work."""
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
"""The compute buffer for 512 tokens takes 362 MiB more than that for 32: little is left."""

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
