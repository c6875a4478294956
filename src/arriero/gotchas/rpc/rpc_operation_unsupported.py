"""What a worker's device cannot compute ends the worker, and the server sees only that it is gone

Symptom
-------
`Remote RPC server crashed or returned malformed response` in the first pass, each time at the same
place, with memory to spare. The worker's own log names an operation, or fails an assert in its
backend.

Root cause
----------
The server asks a worker only for memory, and takes for granted that its device computes every
operation of the graph. Three ways to fall out of that were reported: K and V of different cache
types, or quantised ones, for which the worker's build has no flash attention; quantised caches with
MLA models (GLM 4.7 Flash, ROCm with a CUDA worker); and a worker on macOS that was started without
a device and took BLAS, which has hardly any operation.

Workaround
----------
Read the worker's own log: it names the operation. Take the same type for K and V (`-ctk` and
`-ctv`), f16 if that does not help. On macOS start the worker with its GPU: `ggml-rpc-server -d
MTL0`.

Better fix
----------
Ask a worker what its device supports, as it is done for devices of this machine.
"""

from __future__ import annotations

from collections.abc import Iterator

from arriero.base.words import Kind
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
    kind=Class.BACKEND,
    severity=Severity.INFO,
    concepts=("RPC", "workers", "KV cache"),
    affects=Affects(backends=("RPC",), flags=("--rpc", "-ctk", "-ctv")),
    signs=(Sign(kinds=(Kind.RPC,), text=r"Remote RPC server crashed|GGML_ASSERT\(status\)"),),
    reporters=3,
    provenance=Provenance(
        issues=("ggml-org/llama.cpp#14076", "ggml-org/llama.cpp#19307"),
        builds="about b5620; b7917",
        hardware="Metal and CUDA workers",
        command="--rpc, -ctk q4_0 alone; -ctk q8_0 -ctv q8_0 -fa on",
    ),
    related=("rpc-worker-lost", "rpc-version-skew"),
)


def detect(facts: Facts) -> Iterator[Found]:
    if not endpoints(facts):
        return
    request = facts.launch.params
    types, where = (request.type_k, request.type_v), endpoints(facts)[0]
    if types[0] != types[1] or not set(types) <= _PLAIN:
        yield Found(
            because=f"caches of {types[0]} (K) and {types[1]} (V) are computed on {where}",
            applies=Applies.MAYBE,
            missing=("whether the worker's device has flash attention for them",),
            flag="-ctk",
        )


_PLAIN = frozenset({"f32", "f16", "bf16"})
