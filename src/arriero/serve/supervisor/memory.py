"""Memory before a start and after an end: a restart waits until it is really back."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Final

from arriero.base.sizes import MIB
from arriero.machine import device_memory, host_bounds, wait_for_memory
from arriero.machine.host import ULIMIT
from arriero.process import MemoryUse

PATIENCE: Final = 60.0
"""A driver first frees a hundred gigabytes. After that it is tried with what there is."""
_TOLERANCE: Final = 64 * MIB
_POLL: Final = 0.2


@dataclass(frozen=True)
class Before:
    """Memory before the first start."""

    devices: dict[str, int] = field(default_factory=dict)
    host: int | None = None
    """Free bytes."""


def now() -> Before:
    """Memory as it is now."""
    return Before(device_memory(), _free())


async def back(before: Before, used: MemoryUse, patience: float = PATIENCE) -> str:
    """Wait until what an engine took is free again; what is missing after all, or nothing."""
    missing = ""
    if before.devices:
        missing = await asyncio.to_thread(wait_for_memory, before.devices, timeout=patience)
    taken = used.anonymous_peak or used.anonymous
    if before.host is None or taken is None:
        return missing
    wanted = min(before.host, taken) - _TOLERANCE
    deadline = time.monotonic() + patience
    while (free := _free()) is not None and free < wanted:
        if time.monotonic() > deadline:
            return missing or f"host: {(wanted - free) // MIB} MiB less free than it had taken"
        await asyncio.sleep(_POLL)
    return missing


def _free() -> int | None:
    return min((bound.free for bound in host_bounds() if bound.name != ULIMIT), default=None)
