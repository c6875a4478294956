"""On Windows memory of the card needs backing on the host: a small page file ends the load

Symptom
-------
`unable to allocate backend buffer` or `cudaMalloc failed: out of memory` on Windows, with the
card's memory free; or `The paging file is too small for this operation to complete`. With more RAM
in the machine the same model loads.

Root cause
----------
Windows counts what a program allocates on a card against the memory that it has promised to all
(commit: RAM and page file), so that it could move it to the host. Where that is used up, the card
refuses.

Workaround
----------
A larger page file (let Windows manage it, or set it to the size of the card and more), or programs
closed that hold memory. If the card's own memory is short: fewer layers (`-ngl`) or a smaller `-c`.

Better fix
----------
Tell the two apart in the message.
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
                because=f"{pool.name} is to take {human(pool.at_start)}, more than the host has",
                applies=Applies.MAYBE,
                missing=("the size of the page file",),
                flag="-ngl",
            )
