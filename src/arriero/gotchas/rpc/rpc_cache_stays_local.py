"""`-nkvo` with workers: this machine holds the whole KV cache, the workers hold none of it

Symptom
-------
The log says `CPU KV buffer size` instead of `RPC0[host:port] KV buffer size`. A context that was
planned to spread over several machines does not fit in this machine's memory, or serves slowly.

Root cause
----------
`-nkvo` keeps the KV cache and the recurrent state of every layer in ordinary memory of the server's
machine, also for layers whose weights are on a worker. Then the data that attention reads and the
weights that compute with it are on different machines.

Workaround
----------
Leave `-nkvo` out, so that each worker holds the KV cache of its own layers. To make the cache
smaller, set a smaller `-c` or quantised cache types. (The prompt cache then reads it back from the
workers, see `rpc-prompt-cache-abort`.)

Better fix
----------
A flag that affects only local devices.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from arriero.base.buffers import HOST, pool_of
from arriero.base.sizes import human
from arriero.base.words import Component, TrialOutcome
from arriero.gguf.presets import tiny
from arriero.gotchas.facts import Facts, bytes_of
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
    Signature,
    Worker,
)
from arriero.gotchas.rpc._workers import endpoints
from arriero.record import Edit

GOTCHA = Gotcha(
    kind=Class.FRAMEWORK,
    severity=Severity.WARNING,
    updated="2026-11-30",
    concepts=("RPC", "workers", "placement", "KV cache"),
    affects=Affects(backends=("RPC",), flags=("--rpc", "-nkvo")),
    log=("CPU KV buffer size",),
    provenance=Provenance(
        builds="seen on 10068, 10092 and 10434", command="--rpc 127.0.0.1:50052 -ngl 99 -nkvo"
    ),
    related=("rpc-prompt-cache-abort",),
)


def detect(facts: Facts) -> Iterator[Found]:
    params = facts.launch.params
    if params.offload_kqv or params.n_gpu_layers == 0 or not endpoints(facts):
        return
    told, short = "", False
    if facts.header_or_none is not None:
        host = pool_of(HOST, facts.plan.pools)
        told = f", {human(bytes_of(facts.plan, Component.KV, Component.RS))}"
        short = bool(host and host.free is not None and host.at_start > host.free)
        told += f" where {human(host.free)} are free" if short and host and host.free else ""
    yield Found(
        because=f"-nkvo keeps the KV cache of every layer on this machine{told}, none on a worker",
        severity=None if short else Severity.INFO,
        edit=(Edit(flag="-nkvo"),) if short else (),
        flag="-nkvo",
    )


_FLAGS = "-c 1024 -np 1 -ngl 99 --no-warmup --rpc {workers}"
_RUN = EngineRun(flags=f"{_FLAGS} -nkvo", workers=(Worker(),))

REPRODUCTIONS = (
    Reproduction(
        name="one-worker",
        model=tiny("llama"),
        run=_RUN,
        control=replace(_RUN, flags=_FLAGS),
        shows=Signature(outcome=TrialOutcome.SERVED, log=r"\bCPU KV buffer size"),
        needs=(Needs.RPC_SERVER,),
    ),
)
