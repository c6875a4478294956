"""Pinned host memory is refused and ordinary memory taken: a warning, no failure

Symptom
-------
`failed to allocate 1900.00 MiB of pinned memory: invalid argument`, and the server starts. It may
be a little slower.

Root cause
----------
Buffers of the host that a CUDA device reads are asked for as pinned memory, of which a system gives
a limited amount and containers less. What is refused is taken from ordinary memory.

Workaround
----------
Nothing has to be done. `GGML_CUDA_NO_PINNED=1` in the environment keeps it from being asked for,
and the warning out of the log. If a later line says `unable to allocate CUDA_Host buffer`, the
host's memory itself is short: map the weights (`--mmap`).

Better fix
----------
Say that it goes on with ordinary memory.
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
            because="-nkvo: the KV cache is asked for as pinned memory of the host",
            applies=Applies.MAYBE,
            missing=("how much memory the system lets a program pin",),
            flag="-nkvo",
        )


_VARIABLE = "GGML_CUDA_NO_PINNED"
