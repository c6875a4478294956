"""Names of buffer types as servers printed them, and the pools that they are in."""

from __future__ import annotations

import pytest

from arriero.base.buffers import HOST, is_on_host, pool_of
from arriero.machine import Pool

POOLS = (
    Pool("shared", ("host", "Vulkan0"), 8, 8, ""),
    Pool("CUDA0", ("CUDA0",), 8, 8, ""),
    Pool("RPC0", ("RPC0",), 8, 8, ""),
)


@pytest.mark.parametrize(
    "buffer",
    [
        *("CPU", "CPU_Mapped", "CPU_REPACK", "CPU_AARCH64", "CPU_KLEIDIAI", "AMX"),
        *("CUDA_Host", "ROCm_Host", "Vulkan_Host", "SYCL_Host", "CANN_Host"),
    ],
)
def test_memory_of_the_host(buffer: str) -> None:
    assert is_on_host(buffer)
    assert pool_of(buffer, POOLS) is POOLS[0]
    assert pool_of(buffer, POOLS[1:]) is None


@pytest.mark.parametrize(
    ("buffer", "pool"),
    [
        ("CUDA0", "CUDA0"),
        ("CUDA0_Split", "CUDA0"),
        ("Vulkan0", "shared"),
        ("Vulkan0_Mapped", "shared"),
        ("RPC0[127.0.0.1:50052]", "RPC0"),
        (HOST, "shared"),
        ("CUDA1", None),
        ("MTL0", None),
    ],
)
def test_memory_of_a_device(buffer: str, pool: str | None) -> None:
    assert not is_on_host(buffer)
    found = pool_of(buffer, POOLS)
    assert (found.name if found else None) == pool
