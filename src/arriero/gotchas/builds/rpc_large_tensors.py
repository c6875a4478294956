"""Before b6150 a tensor of more than 2 GiB could not be sent to a worker: `crashed` was said of it

Symptom
-------
A large model ends while it is loaded onto workers, always at the same place: `Remote RPC server
crashed or returned malformed response`. The worker is well. A smaller model, or smaller tensors,
load. It was told on as a rule that a worker takes 75 % of its memory.

Root cause
----------
A tensor was given to the system in a single `send`, and systems take 1 to 2.5 GB at once (macOS
refuses more with EINVAL). The memory of the worker has no part in it. ggml-org/llama.cpp#15188
sends pieces (August 2025, about b6150).

Workaround
----------
A build from 6150 on, on both sides.

Better fix
----------
None needed since then.
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
            because=f"--rpc with {told(facts)}: a tensor above 2 GiB cannot be sent",
            applies=Applies.MAYBE,
            missing=("the largest tensor of the model",),
            flag="--rpc",
        )
