"""On unified memory a file that was just read counts as used, so free memory looks too small

Symptom
-------
A machine with one memory for CPU and GPU (GB10, Jetson) shows little free memory although no
program runs. `--fit` leaves layers on the host, or the load is refused. After `echo 3 | sudo tee
/proc/sys/vm/drop_caches` the same command works.

Root cause
----------
The kernel keeps pages of files that were read, and gives them up on demand. CUDA counts these pages
as used when it reports free memory. A mapped model is read through this cache: its pages stay
beside the GPU's copy, so the model takes its size twice until the kernel drops them.

Workaround
----------
Read the weights without the cache: `-lm dio` (`--no-mmap` in older builds removes the mapping, but
the pages may stay). Or empty the cache before the start: `sync; echo 3 | sudo tee
/proc/sys/vm/drop_caches`. Or decide yourself what fits: `-ngl 999` and a `-c` for which `arriero
plan` finds room.

Better fix
----------
Count what the kernel calls available, not what it calls free.
"""

from __future__ import annotations

from collections.abc import Iterator

from arriero.base.sizes import human
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
)

GOTCHA = Gotcha(
    updated="2026-12-01",
    kind=Class.HARDWARE,
    severity=Severity.INFO,
    concepts=("unified memory", "fit", "CUDA"),
    affects=Affects(backends=("CUDA",), flags=("--mmap", "-lm", "--fit")),
    reporters=0,
    provenance=Provenance(
        builds="from what the vendor says of such machines; not tried here", hardware="GB10, Jetson"
    ),
    related=("shared-memory-limit", "fit-refused-layers"),
)


def detect(facts: Facts) -> Iterator[Found]:
    if not facts.pools:
        return
    from arriero.memory.pools import integrated

    unified = [name for name in integrated(facts.pools) if name.startswith("CUDA")]
    if not unified or not facts.launch.mmap or facts.launch.params.n_gpu_layers == 0:
        return
    for pool, free in known(facts.plan):
        if unified[0] not in pool.devices or not pool.total:
            continue
        if free < pool.at_start + pool.margin <= pool.total:
            yield Found(
                because=f"{pool.name} has {human(free)} free of {human(pool.total)}, too little for"
                f" {human(pool.at_start)}; part of the rest may be cached files",
                applies=Applies.MAYBE,
                missing=("how much of the memory in use is page cache (`free -h` shows it)",),
                flag="-ngl",
            )
