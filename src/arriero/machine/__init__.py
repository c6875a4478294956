"""Pools of memory and what limits them, who holds device memory, what a process may see."""

from __future__ import annotations

from arriero.machine.host import Bound, host_bounds, host_pool
from arriero.machine.model import Holder, Pool
from arriero.machine.nvml import Nvml, nvml
from arriero.machine.pools import pools
from arriero.machine.usage import device_memory, holders, visibility, wait_for_memory

__all__ = [
    "Bound",
    "Holder",
    "Nvml",
    "Pool",
    "device_memory",
    "holders",
    "host_bounds",
    "host_pool",
    "nvml",
    "pools",
    "visibility",
    "wait_for_memory",
]
