"""Level Zero gives at most 4 GiB in one piece by default, and SYCL copies weights to reorder them

Symptom
-------
SYCL on Intel cards: `UR_RESULT_ERROR_OUT_OF_HOST_MEMORY` or `UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY`,
for example in `reorder_qw_...`, although card and host have memory to spare.

Root cause
----------
By default the driver refuses a single allocation above 4 GiB. Also, when quantised weights are
first used, the backend reorders them through a copy: for a while it needs the tensor twice. The
experts of a layer are one large tensor.

Workaround
----------
Set `UR_L0_ENABLE_RELAXED_ALLOCATION_LIMITS=1` in the environment to lift the limit;
`GGML_SYCL_DISABLE_OPT=1` leaves the weights in their order. A smaller `-c` or `-ub`, or `-ncmoe` to
keep experts on the host, makes single buffers smaller.

Better fix
----------
Split buffers above the limit, as Vulkan does.
"""

from __future__ import annotations

from collections.abc import Iterator

from arriero.base.sizes import GIB, human
from arriero.base.words import Kind
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
    kind=Class.BACKEND,
    severity=Severity.INFO,
    concepts=("SYCL", "weights", "allocation limit"),
    affects=Affects(backends=("SYCL",), flags=("-ngl", "-ncmoe")),
    signs=(
        Sign(
            text=r"UR_RESULT_ERROR_OUT_OF_(?:HOST|DEVICE)_MEMORY|UR_RESULT_ERROR_OUT_OF_RESOURCES"
        ),
        Sign(kinds=(Kind.ALLOCATION, Kind.BUFFER_LIMIT), device="SYCL", least=4 * GIB),
    ),
    reporters=1,
    provenance=Provenance(
        issues=("ggml-org/llama.cpp#25812",),
        builds="July 2026",
        hardware="six Arc A770",
        command="-ngl with experts",
    ),
    related=("vulkan-chunk-size",),
)


def detect(facts: Facts) -> Iterator[Found]:
    cards = {name for pool in facts.pools for name in pool.devices if name.startswith("SYCL")}
    if not cards or facts.command.environ.get(_VARIABLE, "0") != "0":
        return
    parts = (b for b in facts.plan.buffers if b.device in cards and not b.upper_bound)
    pieces = [part for part in parts if (part.bytes or 0) > _LIMIT]
    if pieces:
        largest = max(pieces, key=lambda piece: piece.bytes or 0)
        size = human(largest.bytes or 0)
        yield Found(
            because=f"{largest.component.value} on {largest.device} takes {size}, more than"
            f" {human(_LIMIT)} in one piece",
            applies=Applies.MAYBE,
            missing=("how much the card's driver gives in one piece",),
            edit=(Edit(flag=_VARIABLE, value="1", env=True),),
            flag="-ngl",
        )


_VARIABLE = "UR_L0_ENABLE_RELAXED_ALLOCATION_LIMITS"
_LIMIT = 4 * GIB
