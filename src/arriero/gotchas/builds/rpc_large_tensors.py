"""Before b6150 a tensor larger than 2 GiB could not be sent, and the error blamed the worker

Symptom
-------
Loading a large model onto workers always ends at the same place with `Remote RPC server crashed or
returned malformed response`. The worker itself is fine. A smaller model, or one with smaller
tensors, loads. This led to the false rule that a worker can only use 75 % of its memory.

Root cause
----------
Each tensor was sent with a single `send`, and systems take 1 to 2.5 GB in one call (macOS refuses
more with EINVAL). The worker's memory plays no part. ggml-org/llama.cpp#15188 sends tensors in
pieces (August 2025, about b6150).

Workaround
----------
Use build 6150 or newer on the server and on every worker.

Better fix
----------
Newer builds have the fix.
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
    concepts=("RPC", "workers", "weights"),
    affects=Affects(backends=("RPC",), flags=("--rpc",)),
    reporters=2,
    provenance=Provenance(
        issues=("ggml-org/llama.cpp#15055", "ggml-org/llama.cpp#15188"),
        builds="b6031; mended about b6150",
        hardware="Macs over RPC",
        command="--rpc, DeepSeek-R1 Q4_0",
    ),
    related=("rpc-worker-lost", "rpc-worker-memory"),
)


def detect(facts: Facts) -> Iterator[Found]:
    if endpoints(facts) and within(facts, 0, 6149):
        yield Found(
            because=f"--rpc with {told(facts)}, which cannot send a tensor above 2 GiB",
            applies=Applies.MAYBE,
            missing=("the largest tensor of the model",),
            flag="--rpc",
        )
