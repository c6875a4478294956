"""A KV cache on the host can make the compute buffer larger when flash attention is off

Symptom
-------
`-nkvo` was meant to save the card's memory, but the card refuses a compute buffer of many GiB.

Root cause
----------
The cache stays on the host and the layers stay on the card. If the card still computes the
attention, it gets copies of K and V for each layer and, without flash attention, keeps the scores
of the whole context. A report dates this to ggml-org/llama.cpp#13746.

Workaround
----------
Set `-fa on`, and a smaller `-c` or `-ub`; `-c 0` means the whole training context. With fewer
layers on the card (`-ngl`), the others compute their attention on the host.

Better fix
----------
Count the copies in the sizes that the log prints.
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
)
from arriero.record import Edit

GOTCHA = Gotcha(
    updated="2026-12-01",
    kind=Class.FRAMEWORK,
    severity=Severity.INFO,
    concepts=("KV cache", "compute buffer", "offload"),
    affects=Affects(flags=("-nkvo", "-fa", "-c")),
    reporters=1,
    provenance=Provenance(
        issues=("ggml-org/llama.cpp#14740", "ggml-org/llama.cpp#13746"),
        builds="from May 2025",
        hardware="Tesla M60",
        command="-ngl 80 --ctx-size 0 --no-kv-offload",
    ),
    related=("scores-without-flash",),
)


def detect(facts: Facts) -> Iterator[Found]:
    params = facts.launch.params
    on_device = any("host" not in pool.devices for pool in facts.pools)
    if params.offload_kqv or params.n_gpu_layers == 0 or not on_device:
        return
    by_default = facts.build is not None and facts.build >= _FLASH_BY_ITSELF
    if params.flash_attn == "off" or not (by_default or facts.command.has("-fa")):
        yield Found(
            because="-nkvo without flash attention: the device gets copies of K and V and keeps all"
            " scores",
            applies=Applies.MAYBE,
            missing=("whether the device computes the attention of its layers",),
            edit=(Edit(flag="-fa", value="on"),),
            flag="-nkvo",
        )


_FLASH_BY_ITSELF = 6325
"""About since this build, flash attention is on by default if the device supports it."""
