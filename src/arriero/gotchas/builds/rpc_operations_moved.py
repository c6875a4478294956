"""Before b8270 workers of another build could pass for the same: garbage or a crash

Symptom
-------
Server and worker greet each other without complaint, and then the answer is garbage or a worker
crashes in `graph_compute`. They are of different builds.

Root cause
----------
Operations are sent as numbers. When llama.cpp got a new operation the numbers moved, and the
version of the protocol did not: up to ggml-org/llama.cpp#20330 (March 2026) nothing refused the
difference.

Workaround
----------
The same build everywhere: server and all workers.

Better fix
----------
Since then a changed list of operations changes the version.
"""

from __future__ import annotations

from collections.abc import Iterator

from arriero.gotchas.builds._range import told, within
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
    kind=Class.BACKEND,
    severity=Severity.INFO,
    concepts=("RPC", "workers", "versions"),
    affects=Affects(backends=("RPC",), flags=("--rpc",)),
    reporters=1,
    provenance=Provenance(
        issues=("ggml-org/llama.cpp#20330", "ggml-org/llama.cpp#20259"),
        builds="before about b8270",
        hardware="any",
        command="--rpc with workers of another build",
    ),
    related=("rpc-version-skew",),
)


def detect(facts: Facts) -> Iterator[Found]:
    if endpoints(facts) and within(facts, 0, 8269):
        yield Found(
            because=f"--rpc with {told(facts)}, which does not notice workers of another build",
            applies=Applies.MAYBE,
            missing=("the builds of the workers",),
            flag="--rpc",
        )
