"""With very many workers the fixed pool for graph metadata runs out

Symptom
-------
`ggml_new_object: not enough space in the context's memory pool (needed 39616, available 39328)` on
a worker or on the server, with GiB of memory free. The report has seventeen workers.

Root cause
----------
A graph that is spread over many devices is cut into many pieces, and each cut adds nodes. They are
kept in a pool whose size is computed beforehand, with too little room for so many. The machine is
not short of memory.

Workaround
----------
Use fewer workers, or a newer build, whose pools are larger.

Better fix
----------
Compute the size from the number of devices.
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
    Sign,
)
from arriero.gotchas.rpc._workers import endpoints

GOTCHA = Gotcha(
    updated="2026-12-01",
    kind=Class.FRAMEWORK,
    severity=Severity.INFO,
    concepts=("RPC", "workers", "graph"),
    affects=Affects(backends=("RPC",), flags=("--rpc",)),
    signs=(Sign(text=r"not enough space in the context's memory pool", sure=True),),
    reporters=3,
    provenance=Provenance(
        issues=("gpustack/gpustack#1131", "gpustack/gpustack#1169", "gpustack/gpustack#1122"),
        builds="a fork of b4598",
        hardware="17 workers",
        command="--rpc with 17 endpoints",
    ),
    related=("graph-metadata",),
)


def detect(facts: Facts) -> Iterator[Found]:
    many = len(endpoints(facts))
    if many >= _MANY:
        yield Found(
            because=f"{many} workers: a graph in so many pieces may not fit in its pool",
            applies=Applies.MAYBE,
            missing=("whether this build makes its pools large enough",),
            flag="--rpc",
        )


_MANY = 12
