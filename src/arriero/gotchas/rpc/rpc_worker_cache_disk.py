"""A worker started with `-c` keeps tensors on its disk and never throws one away

Symptom
-------
The disk of a worker fills up, by hundreds of GB after some models: `~/.cache/llama.cpp/rpc`. Then
the worker cannot write and other programs fail.

Root cause
----------
With `-c` a worker saves each large tensor that it is sent in a file of its own, named by its
contents, so that the next load need not send it. Nothing limits the directory, and nothing is
removed from it, whatever models were used once.

Workaround
----------
Start the worker without `-c`, or delete its cache directory from time to time (`LLAMA_CACHE` says
where it is). Nothing in it is needed: what is missing is sent again.

Better fix
----------
A limit in bytes, with the oldest files going first.
"""

from __future__ import annotations

from collections.abc import Iterator

from arriero.gotchas.facts import Facts
from arriero.gotchas.model import (
    Affects,
    Applies,
    Class,
    Found,
    Gotcha,
    Provenance,
    Severity,
)
from arriero.gotchas.rpc._workers import endpoints

GOTCHA = Gotcha(
    updated="2026-12-01",
    kind=Class.FRAMEWORK,
    severity=Severity.INFO,
    concepts=("RPC", "workers", "disk"),
    affects=Affects(backends=("RPC",), flags=("--rpc",)),
    reporters=1,
    provenance=Provenance(
        issues=("ggml-org/llama.cpp#27585",),
        builds="August 2026",
        hardware="CUDA",
        command="rpc-server -c",
    ),
    related=("rpc-cache-stays-local",),
)


def detect(facts: Facts) -> Iterator[Found]:
    if named := endpoints(facts):
        yield Found(
            because=f"weights are sent to {named[0]}, and a worker with -c keeps every one",
            applies=Applies.MAYBE,
            missing=("whether the workers were started with -c",),
            flag="--rpc",
        )
