"""The engine refuses a worker of another build: the server runs without it, or aborts

Symptom
-------
The server starts, listens and answers, but slowly: everything is on the local machine. Among the
first lines of the log are `RPC server version mismatch: N.N.N`, the worker's version, and `Failed
to connect to HOST:PORT`, as if nothing answered there. Newer builds abort instead (SIGABRT) with
`RPC handshake failed for HOST:PORT`.

Root cause
----------
Client and worker first exchange the version of their protocol. The client accepts a worker with the
same major version whose minor version is not above its own, and refuses any other. The version
changes with the commands and with the list of operations, so builds a few weeks apart can differ.
It does not identify the build, and no flag overrides the check. A build from before the version
followed the operations (March 2026) may be accepted and then crash.

Workaround
----------
Run the same build on every machine, and update all of them together. Until then remove the worker
from `--rpc`, so that `--fit` and `-ts` count only what is there.

Better fix
----------
Name both versions and end with an error, instead of continuing without the worker or aborting.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from arriero.base.words import Kind
from arriero.gguf.presets import tiny
from arriero.gotchas.facts import Facts
from arriero.gotchas.missing import MissingError
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
    Worker,
)
from arriero.record import Edit

GOTCHA = Gotcha(
    kind=Class.FRAMEWORK,
    severity=Severity.WARNING,
    updated="2026-11-30",
    concepts=("RPC", "workers", "placement"),
    affects=Affects(backends=("RPC",), flags=("--rpc",)),
    log=("RPC server version mismatch", "RPC handshake failed for"),
    signs=(Sign(kinds=(Kind.RPC,), text=r"version mismatch|handshake failed", sure=True),),
    reporters=1,
    provenance=Provenance(
        issues=("ggml-org/llama.cpp#26392", "ggml-org/llama.cpp#20330"),
        builds="b10216 with a worker of 4.0.1; seen on 10068, 10092 and 10434; 11434 aborts",
        command="--rpc 10.0.0.185:50052",
    ),
    related=("rpc-worker-unused",),
)


def detect(facts: Facts) -> Iterator[Found]:
    if not facts.launch.workers:
        return
    if facts.workers_or_none is None:
        raise MissingError("the workers' protocol version (--probe asks them)")
    left = [endpoint for endpoint, answers in facts.workers_or_none.items() if answers]
    for endpoint, refusal in facts.refused.items():
        speaks = f"version {refusal.version}" if refusal.version else "another version"
        yield Found(
            because=f"{endpoint} speaks {speaks} of the protocol: the engine"
            f" {'aborts' if refusal.fatal else 'continues without it'}",
            edit=(Edit(flag="--rpc", value=",".join(left) or None),),
            flag="--rpc",
            severity=Severity.ERROR if refusal.fatal else None,
        )


_RUN = EngineRun(
    flags="-c 1024 -np 1 -ngl 99 --no-warmup --rpc {workers}", workers=(Worker(skewed=True),)
)

REPRODUCTIONS = (
    Reproduction(
        name="worker-of-another-build",
        model=tiny("llama"),
        run=_RUN,
        control=replace(_RUN, workers=(Worker(),)),
        shows=Signature(log=r"RPC server version mismatch|RPC handshake failed for"),
        needs=(Needs.RPC_SERVER, Needs.OTHER_BUILD),
    ),
)
