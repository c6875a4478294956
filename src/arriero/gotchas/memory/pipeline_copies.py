"""With several devices compute holds four batches at once: hundreds of GiB with overrides

Symptom
-------
`pipeline parallelism enabled (n_copies=4)`, and then an absurd size: `allocating 1407257.91 MiB on
device 0: cudaMalloc failed: out of memory`. Or an ordinary refusal followed by `retrying without
pipeline parallelism`, after which the server serves.

Root cause
----------
When layers are split over several devices, the inputs of four batches are kept so that the devices
work at the same time. With tensors on the host (`-ot`, `-ncmoe`), builds before November 2025 kept
whole experts four times. Since ggml-org/llama.cpp#16748, the engine retries with one copy after a
refusal, and makes no copies at all with overrides.

Workaround
----------
If the log continues with `retrying without pipeline parallelism`, there is nothing to do: this
failure did not end the start. Otherwise use a newer build, one compiled with
`-DGGML_SCHED_MAX_COPIES=1` (works for forks as well), or a single device.

Better fix
----------
Newer builds have the fix; forks may not.
"""

from __future__ import annotations

from collections.abc import Iterator

from arriero.base.sizes import GIB
from arriero.base.words import Component, Kind
from arriero.gotchas.builds._range import told, within
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
    kind=Class.FRAMEWORK,
    severity=Severity.INFO,
    concepts=("compute buffer", "several devices", "experts"),
    affects=Affects(flags=("-ot", "-ncmoe", "-sm")),
    signs=(
        Sign(kinds=(Kind.ALLOCATION,), components=(Component.COMPUTE,), least=64 * GIB),
        Sign(notice="pipeline_retry", sure=True),
    ),
    reporters=5,
    provenance=Provenance(
        issues=(
            "ggml-org/llama.cpp#11397",
            "ggml-org/llama.cpp#16748",
            "ikawrakow/ik_llama.cpp#749",
            "ikawrakow/ik_llama.cpp#500",
        ),
        builds="about b4650 to b6860, and a fork",
        hardware="several CUDA cards",
        command="-ot exps=CPU -ngl 62",
    ),
    related=("scores-without-flash",),
)


def detect(facts: Facts) -> Iterator[Found]:
    devices = [pool.name for pool in facts.pools if "host" not in pool.devices]
    moved = next((flag for flag in ("-ot", "-ncmoe", "-cmoe") if facts.command.has(flag)), None)
    if len(devices) > 1 and moved and within(facts, 4600, 6859):
        yield Found(
            because=f"{moved} with {len(devices)} devices: {told(facts)} keeps inputs four times",
            applies=Applies.MAYBE,
            missing=("how many copies this build was compiled for",),
            flag=moved,
        )
