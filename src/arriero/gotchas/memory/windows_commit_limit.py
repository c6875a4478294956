"""On Windows the card's memory counts against host memory: a small page file ends the load

Symptom
-------
On Windows, `unable to allocate backend buffer` or `cudaMalloc failed: out of memory` although the
card has memory free. Or `The paging file is too small for this operation to complete`. With more
RAM in the machine the same model loads.

Root cause
----------
Windows counts what a program allocates on a card against the memory that it has promised to all
programs (commit: RAM and page file), because it may have to move it to the host. When that is used
up, the card refuses.

Workaround
----------
Enlarge the page file (let Windows manage it, or make it larger than the card's memory), or close
programs that hold memory. If the card's own memory is short, use fewer layers (`-ngl`) or a smaller
`-c`.

Better fix
----------
Distinguish the two cases in the message.
"""

from __future__ import annotations

from collections.abc import Iterator

from arriero.base.buffers import HOST
from arriero.base.sizes import human
from arriero.base.words import Kind
from arriero.gotchas.facts import Facts
from arriero.gotchas.memory._pools import host, known
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
    concepts=("Windows", "weights", "host memory"),
    affects=Affects(backends=("CUDA",), flags=("-ngl",)),
    signs=(
        Sign(text=r"[Pp]aging file", sure=True),
        Sign(kinds=(Kind.ALLOCATION,), text=r"unable to allocate backend buffer"),
    ),
    reporters=1,
    provenance=Provenance(
        issues=("ggml-org/llama.cpp#7366",),
        builds="2024",
        hardware="CUDA, Windows",
        command="command-r",
    ),
)


def detect(facts: Facts) -> Iterator[Found]:
    if not (facts.command.program or "").lower().endswith(".exe") or not facts.pools:
        return
    for pool, free in known(facts.plan):
        host_pool = host(facts.plan)
        if HOST in pool.devices or host_pool is None:
            continue
        if free >= pool.at_start > host_pool[1]:
            yield Found(
                because=f"{pool.name} must hold {human(pool.at_start)}; the host has less free",
                applies=Applies.MAYBE,
                missing=("the size of the page file",),
                flag="-ngl",
            )
