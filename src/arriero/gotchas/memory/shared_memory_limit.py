"""A GPU that is part of the processor gets the share of memory that the system allows, not all

Symptom
-------
`radv/amdgpu: Failed to allocate a buffer`, `cudaMalloc failed: out of memory` from ROCm, or a load
that hangs, while the machine has tens of GiB free and `--list-devices` may show more than is
wanted.

Root cause
----------
Such a GPU uses the machine's memory through a table of the kernel's (GTT), whose size is a setting:
half of the memory unless it was changed. What was set aside for graphics in the firmware is a pool
of its own. On Windows the list counts shared memory that cannot be allocated in one piece. Vulkan
has a heap for each part and takes the one that it calls local.

Workaround
----------
Linux with AMD: raise the share with the kernel's parameters `ttm.pages_limit=` (pages of 4 KiB) or,
in older kernels, `amdgpu.gttsize=` (MiB). `GGML_VK_PREFER_HOST_MEMORY=1` makes Vulkan take the
other heap. Windows: set more graphics memory aside in the driver or firmware. Or make it smaller:
`-c`, `-ub`, fewer layers.

Better fix
----------
Show how much a device gives in all and in one piece, and not only what is free.
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
                because=f"{pool.name} needs {human(pool.at_start)} and gives {human(free)}",
                applies=Applies.MAYBE,
                missing=(f"whether {pool.name} is part of the processor",),
                flag="-ngl",
            )
