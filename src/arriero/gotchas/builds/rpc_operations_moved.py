"""Before b8270 the server accepted workers of other builds: wrong answers or a crash

Symptom
-------
Server and worker connect without complaint. Then the answers are garbage, or a worker crashes in
`graph_compute`. The two are of different builds.

Root cause
----------
Operations are sent as numbers. When llama.cpp got a new operation, the numbers shifted but the
protocol version stayed the same. Up to ggml-org/llama.cpp#20330 (March 2026) nothing refused such a
pair.

Workaround
----------
Run the same build everywhere: on the server and on all workers.

Better fix
----------
Newer builds change the protocol version when the list of operations changes.
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
