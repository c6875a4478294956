"""`layer 0 is assigned to device CPU but the fused ...`: memory was short, no kernel is missing

Symptom
-------
`layer 0 is assigned to device CPU but the fused Gated Delta Net tensor is assigned to device CUDA0
(usually due to missing support)`. The server is slower than with a slightly shorter context, or it
fails to load.

Root cause
----------
The model needed a little more than the device had, and `--fit` moved a layer to the host. The fused
operation then has its parts on two devices and is switched off. The words about missing support
describe another case.

Workaround
----------
Make everything fit: a smaller `-c` or `-ub`, fewer drafted tokens (`--spec-draft-n-max`), or
`--no-mmproj-offload`. The warning disappears when all layers are on the device.

Better fix
----------
Say that fit moved the layer, and how much memory was missing.
"""

from __future__ import annotations

from collections.abc import Iterator

from arriero.base.sizes import human
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
from arriero.record import Edit

GOTCHA = Gotcha(
    updated="2026-12-01",
    kind=Class.FRAMEWORK,
    severity=Severity.INFO,
    concepts=("fit", "offload", "hybrid"),
    affects=Affects(flags=("-c", "-ub", "--fit")),
    signs=(Sign(notice="fused_op_off"),),
    reporters=2,
    provenance=Provenance(
        issues=("ggml-org/llama.cpp#27162", "ggml-org/llama.cpp#24712"),
        builds="about b9600 to b10437",
        hardware="two RTX 3090; RTX 5060 laptop",
        command="-c 262144, where 250000 works",
    ),
    related=("fit-refused-layers",),
)


def detect(facts: Facts) -> Iterator[Found]:
    if not facts.launch.fit or not facts.launch.layers_open:
        return
    if not any(facts.hparams.is_recurrent):
        return
    layers = facts.plan_of(facts.with_edits((Edit(flag="-ngl", value="999"),)).command)
    for pool in layers.pools:
        short = pool.free is not None and pool.at_start + pool.margin > pool.free
        if "host" not in pool.devices and pool.at_start and short:
            yield Found(
                because=f"{pool.name} does not hold all layers ({human(pool.at_start)} and a margin"
                f" of {human(pool.margin)}): fit moves some to the host",
                applies=Applies.MAYBE,
                missing=("the compute buffer, which is only a bound without the engine",),
                flag="-c",
            )
            return
