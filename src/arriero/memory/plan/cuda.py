"""What CUDA takes beside llama.cpp's buffers, as others measured it. Nothing of it was seen here.

ROCm takes something of the kind as well; how much is not known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from arriero.base.sizes import MIB
from arriero.base.words import Component, Method
from arriero.launch.context import pad
from arriero.machine import Pool
from arriero.record import PlanBuffer

_DEVICE: Final = re.compile(r"CUDA\d+\Z")
_PAGE: Final = 2 * MIB
_CONTEXT: Final = 296 * MIB
_PROCESS: Final = int(5.3 * MIB)
_FULL: Final = 12 * MIB
_SOURCE: Final = "measured by others, not verified here"


def cuda_terms(buffers: Sequence[PlanBuffer], pools: Sequence[Pool]) -> Iterator[PlanBuffer]:
    """Lines for each CUDA device that something is planned on.

    Free memory that an engine lists was read by a process with a context of its own, which is then
    off it already.
    """
    devices = dict.fromkeys(b.device for b in buffers if _DEVICE.match(b.device))
    for device in devices:
        taken = [b.bytes or 0 for b in buffers if b.device == device]
        rounded = sum(pad(size, _PAGE) - size for size in taken)
        yield _term(device, rounded, "buffers rounded up to pages of 2 MiB")
        if not any(one.name == device for pool in pools for one in pool.listed):
            yield _term(device, _CONTEXT, "CUDA context, whose size depends on the GPU")
            yield _term(device, _PROCESS, "per process; NVML reports it for no process")
        yield _term(device, _FULL, "once the context is full", grows=True)


def _term(device: str, size: int, what: str, *, grows: bool = False) -> PlanBuffer:
    return PlanBuffer(
        component=Component.POOL,
        device=device,
        bytes=size,
        method=Method.ESTIMATED,
        reason=f"{what}; {_SOURCE}",
        grows=grows,
    )
