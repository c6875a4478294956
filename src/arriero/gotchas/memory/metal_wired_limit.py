"""macOS gives the GPU about two thirds to three quarters of memory, but Metal does not refuse more

Symptom
-------
`the allocated size is greater than the recommended max working set size`, and then `command buffer
0 failed with status 5`, `Insufficient Memory`, or garbage, although the Mac has memory free.

Root cause
----------
Memory that the GPU uses is wired, and macOS limits how much may be wired
(`recommendedMaxWorkingSetSize`). Metal allocates above the limit without complaint; the work fails
later.

Workaround
----------
Raise the limit until the next restart with `sudo sysctl iogpu.wired_limit_mb=N`, and leave at least
8 GB for the system. Or use less memory: a smaller `-c` or `-ub`, fewer layers (`-ngl`).

Better fix
----------
Refuse at the start what the device recommends against.
"""

from __future__ import annotations

from collections.abc import Iterator

from arriero.base.sizes import human
from arriero.gotchas.facts import Facts
from arriero.gotchas.model import (
    Affects,
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
    concepts=("Metal", "unified memory"),
    affects=Affects(backends=("Metal",), flags=("-ngl", "-c")),
    signs=(
        Sign(notice="near_limit"),
        Sign(text=r"command buffer \d+ failed with status"),
    ),
    reporters=0,
    provenance=Provenance(
        builds="the lines are from the source of builds up to 11739; not tried here",
        hardware="Macs",
    ),
    related=("shared-memory-limit",),
)


def detect(facts: Facts) -> Iterator[Found]:
    for pool in facts.pools:
        if not any(name.startswith(("MTL", "Metal")) for name in pool.devices):
            continue
        planned = next(p for p in facts.plan.pools if p.name == pool.name)
        if planned.free is not None and planned.at_start > planned.free:
            yield Found(
                because=f"{pool.name} needs {human(planned.at_start)} at the start; macOS gives"
                f" {human(planned.free)}",
                flag="-ngl",
            )
