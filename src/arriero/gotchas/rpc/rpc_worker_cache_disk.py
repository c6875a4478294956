"""A worker started with `-c` keeps tensors on its disk and never deletes one

Symptom
-------
The disk of a worker fills up, by hundreds of GB after some models: `~/.cache/llama.cpp/rpc`. Then
the worker cannot write and other programs fail.

Root cause
----------
With `-c` a worker saves each large tensor that it receives in its own file, named by its contents,
so that it need not be sent for the next load. Nothing limits the directory, and nothing is ever
removed from it, even for models that were used only once.

Workaround
----------
Start the worker without `-c`, or delete its cache directory from time to time (`LLAMA_CACHE` says
where it is). Nothing in it is needed: a missing tensor is sent again.

Better fix
----------
A limit in bytes that deletes the oldest files first.
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
            because=f"weights are sent to {named[0]}; a worker with -c keeps them all on its disk",
            applies=Applies.MAYBE,
            missing=("whether the workers were started with -c",),
            flag="--rpc",
        )
