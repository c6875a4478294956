"""The system refuses pinned host memory and the engine uses ordinary memory: a warning, no failure

Symptom
-------
`failed to allocate 1900.00 MiB of pinned memory: invalid argument`, and the server starts. It may
be a little slower.

Root cause
----------
The engine asks for pinned memory for host buffers that a CUDA device reads. A system gives only a
limited amount of it, and containers get less. When it is refused, the engine uses ordinary memory.

Workaround
----------
There is nothing to do. `GGML_CUDA_NO_PINNED=1` in the environment stops the engine from asking, and
so removes the warning. If a later line says `unable to allocate CUDA_Host buffer`, the host's
memory itself is short: map the weights (`--mmap`).

Better fix
----------
Say that the engine continues with ordinary memory.
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

GOTCHA = Gotcha(
    updated="2026-12-01",
    kind=Class.BACKEND,
    severity=Severity.INFO,
    concepts=("CUDA", "host memory"),
    affects=Affects(backends=("CUDA",), flags=("-nkvo", "-ncmoe")),
    signs=(Sign(notice="pinned_memory_refused", sure=True),),
    reporters=1,
    provenance=Provenance(
        issues=("ggml-org/llama.cpp#9629",),
        builds="b38xx",
        hardware="CUDA",
        command="13B, 1M context",
    ),
)


def detect(facts: Facts) -> Iterator[Found]:
    cuda = any(pool.name.startswith("CUDA") for pool in facts.pools)
    if not cuda or facts.launch.params.offload_kqv or _VARIABLE in facts.command.environ:
        return
    if facts.launch.params.n_gpu_layers != 0:
        yield Found(
            because="-nkvo: the engine asks for pinned host memory for the KV cache",
            applies=Applies.MAYBE,
            missing=("how much memory the system lets a program pin",),
            flag="-nkvo",
        )


_VARIABLE = "GGML_CUDA_NO_PINNED"
