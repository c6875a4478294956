"""CUDA, HIP and SYCL take more memory while they compute than the buffers allocated at the start

Symptom
-------
The server starts and answers short prompts. The first long prompt kills it: `CUDA error: out of
memory`, in `alloc`, with `cuMemCreate` or `cudaMalloc`; exit status 134. On AMD cards, each prompt
of a new length takes more memory until none is left.

Root cause
----------
Besides the buffers that are allocated at the start, these backends have a pool for what a kernel
needs for a moment: inputs in another type, dequantised weights, parts of attention. The pool grows
with the micro-batch and the context, and is never given back. If memory cannot be mapped piece by
piece (HIP), the pool consists of whole buffers, which fragment. No size line shows the pool and
`--fit` does not count it.

Workaround
----------
Leave 1 to 2 GiB of the device free: a larger `-fitt` (MiB), a smaller `-c`, or one layer less. A
smaller `-ub` makes the pool smaller.

Better fix
----------
ggml-org/llama.cpp#28044 proposes to allocate at the start what the largest graph needs of the pool.
"""

from __future__ import annotations

from collections.abc import Iterator

from arriero.base.sizes import GIB, human
from arriero.base.words import Component, Kind
from arriero.gotchas.facts import Facts
from arriero.gotchas.memory._pools import known
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
    concepts=("CUDA", "ROCm", "pools", "micro-batch"),
    affects=Affects(backends=("CUDA", "ROCm", "SYCL"), flags=("-fitt", "-ub", "-c")),
    signs=(
        Sign(
            kinds=(Kind.RUNTIME_ALLOCATION,),
            components=(Component.POOL,),
            text=r"CUDA|ROCm|HIP|MUSA|allocate",
        ),
    ),
    reporters=5,
    provenance=Provenance(
        issues=("ggml-org/llama.cpp#28044", "ggml-org/llama.cpp#11337", "ollama/ollama#17089"),
        builds="all; bisected about b4450 for HIP",
        hardware="three RTX 3090; RX 7900 XTX",
        command="-c 196608; -fa, -c 32768",
    ),
    related=("cuda-graphs-grow",),
)


def detect(facts: Facts) -> Iterator[Found]:
    pooled = [pool.name for pool in facts.pools if pool.name.startswith(_POOLED)]
    if not pooled:
        return
    for pool, free in known(facts.plan):
        left = free - pool.at_start
        if pool.name in pooled and pool.at_start and 0 <= left < max(GIB, free // _PART):
            yield Found(
                because=f"{pool.name} has only {human(left)} left at the start for its kernels",
                applies=Applies.MAYBE,
                missing=("how much its pool will take, which no plan can tell",),
                flag="-ub",
            )


_PART = 12
"""Of a card's memory: 2 GiB of 24."""
_POOLED = ("CUDA", "ROCm", "HIP", "MUSA", "SYCL")
