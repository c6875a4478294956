"""A worker dies of an operation that its device cannot compute; the server only sees it gone

Symptom
-------
`Remote RPC server crashed or returned malformed response` in the first pass, each time at the same
place, with memory to spare. The worker's own log names an operation, or an assert fails in its
backend.

Root cause
----------
The server asks a worker only for its memory, and assumes that its device can compute every
operation of the graph. Reports show three cases in which it cannot: K and V caches of different or
quantised types, for which the worker's build has no flash attention; quantised caches with MLA
models (GLM 4.7 Flash, ROCm with a CUDA worker); and a worker on macOS that was started without a
device and used BLAS, which supports hardly any operation.

Workaround
----------
Read the worker's own log: it names the operation. Use the same type for K and V (`-ctk` and
`-ctv`), and f16 if that does not help. On macOS start the worker with its GPU: `ggml-rpc-server -d
MTL0`.

Better fix
----------
Ask a worker what its device supports, as the engine does for devices of this machine.
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
    params = facts.launch.params
    types, where = (params.type_k, params.type_v), endpoints(facts)[0]
    if types[0] != types[1] or not set(types) <= _PLAIN:
        yield Found(
            because=f"{where} must compute with caches of {types[0]} (K) and {types[1]} (V)",
            applies=Applies.MAYBE,
            missing=("whether the worker's device has flash attention for these types",),
            flag="-ctk",
        )


_PLAIN = frozenset({"f32", "f16", "bf16"})
