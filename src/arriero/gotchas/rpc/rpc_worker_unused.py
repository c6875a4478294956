"""The server ignores a worker that does not answer, and runs without it

Symptom
-------
The server starts, listens and answers, but slowly: everything is on the local machine. One of the
first lines of the log says `Failed to connect to HOST:PORT`. `--list-devices` does not list the
worker either. Newer builds abort there instead (SIGABRT).

Root cause
----------
The engine asks the workers while it reads `--rpc`, before anything else is known. A worker that it
cannot reach gives no device, and the model is placed on the devices that are left.

Workaround
----------
Start the worker first. If you must run without it, remove its address from `--rpc`, so that `--fit`
and `-ts` count only what is there.

Better fix
----------
Refuse to start without a named worker, as newer builds do, but with a message instead of an abort.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from arriero.base.words import TrialOutcome
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
    log=("Failed to connect to",),
    provenance=Provenance(
        builds="seen on 10068 and 10434; 11434 aborts instead", command="--rpc 127.0.0.1:50052"
    ),
    related=("rpc-prompt-cache-abort", "rpc-version-skew"),
)


def detect(facts: Facts) -> Iterator[Found]:
    if not facts.launch.workers:
        return
    if facts.workers_or_none is None:
        raise MissingError("whether the workers answer (--probe asks them)")
    answering = facts.workers_or_none
    silent = [e for e, answers in answering.items() if not answers and e not in facts.refused]
    left = [endpoint for endpoint, answers in answering.items() if answers]
    if silent:
        yield Found(
            because=f"the engine gets no device from {', '.join(silent)}",
            edit=(Edit(flag="--rpc", value=",".join(left) or None),),
            flag="--rpc",
        )


_RUN = EngineRun(flags="-c 1024 -np 1 -ngl 99 --no-warmup --rpc 127.0.0.1:9")
"""The port of the `discard` service, which nothing uses today."""

REPRODUCTIONS = (
    Reproduction(
        name="nobody-there",
        model=tiny("llama"),
        run=_RUN,
        control=replace(
            _RUN,
            flags="-c 1024 -np 1 -ngl 99 --no-warmup --rpc {workers}",
            workers=(Worker(),),
        ),
        shows=Signature(outcome=TrialOutcome.SERVED, log=r"Failed to connect to 127\.0\.0\.1:9"),
        needs=(Needs.RPC_SERVER,),
    ),
)
