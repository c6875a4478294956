"""A GPU inside the processor gets only the share of memory that the system allows

Symptom
-------
`radv/amdgpu: Failed to allocate a buffer`, `cudaMalloc failed: out of memory` from ROCm, or a load
that hangs, while the machine has tens of GiB free and `--list-devices` may show more than is
needed.

Root cause
----------
Such a GPU uses the machine's memory through a table of the kernel (GTT), whose size is a setting:
half of the memory by default. Memory that the firmware sets aside for graphics is a separate pool.
On Windows the list counts shared memory that cannot be allocated in one piece. Vulkan has a heap
for each part and uses the one that it calls local.

Workaround
----------
On Linux with AMD, raise the share with the kernel parameter `ttm.pages_limit=` (pages of 4 KiB) or,
for older kernels, `amdgpu.gttsize=` (MiB). `GGML_VK_PREFER_HOST_MEMORY=1` makes Vulkan use the
other heap. On Windows, set aside more graphics memory in the driver or firmware. Or use less
memory: a smaller `-c` or `-ub`, fewer layers.

Better fix
----------
Show how much a device gives in total and in one piece, not only what is free.
"""

from __future__ import annotations

from collections.abc import Iterator

from arriero.base.sizes import GIB, human
from arriero.base.words import Kind
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
    kind=Class.HARDWARE,
    severity=Severity.INFO,
    concepts=("unified memory", "Vulkan", "ROCm"),
    affects=Affects(backends=("Vulkan", "ROCm"), flags=("-ngl", "-c")),
    signs=(
        Sign(text=r"(?:radv|amdgpu)\S*: Failed to allocate a buffer"),
        Sign(kinds=(Kind.ALLOCATION,), device="ROCm", least=64 * GIB),
        Sign(kinds=(Kind.ALLOCATION,), device="Vulkan", least=64 * GIB),
    ),
    reporters=4,
    provenance=Provenance(
        issues=(
            "ggml-org/llama.cpp#19764",
            "Nathanw1014/strix-halo-llamacpp#8",
            "geerlingguy/beowulf-ai-cluster#2",
        ),
        builds="about b6070 to August 2026",
        hardware="Strix Halo, Linux and Windows",
        command="-ngl 99 and a model of 97 GB",
    ),
    related=("vulkan-chunk-size", "metal-wired-limit"),
)


def detect(facts: Facts) -> Iterator[Found]:
    shared = [pool.name for pool in facts.pools if pool.name.startswith(("Vulkan", "ROCm"))]
    if not shared or facts.launch.params.n_gpu_layers == 0:
        return
    for pool, free in known(facts.plan):
        if pool.name in shared and pool.at_start > free:
            yield Found(
                because=f"{pool.name} must hold {human(pool.at_start)} at the start but has"
                f" {human(free)}",
                applies=Applies.MAYBE,
                missing=(f"whether {pool.name} is part of the processor",),
                flag="-ngl",
            )
