"""The CPU, pools of memory, their limits and holders, and which devices a process may see."""

from __future__ import annotations

from arriero.machine.cpu import CpuFeatures, Misfit, cpu_behind, misfit, this_cpu
from arriero.machine.host import Bound, host_bounds, host_pool
from arriero.machine.model import Holder, Pool
from arriero.machine.nvml import Nvml, nvml
from arriero.machine.pools import free_host_memory, pools
from arriero.machine.usage import device_memory, holders, visibility, wait_for_memory

__all__ = [
    "Bound",
    "CpuFeatures",
    "Holder",
    "Misfit",
    "Nvml",
    "Pool",
    "cpu_behind",
    "device_memory",
    "free_host_memory",
    "holders",
    "host_bounds",
    "host_pool",
    "misfit",
    "nvml",
    "pools",
    "this_cpu",
    "visibility",
    "wait_for_memory",
]
