"""Which devices share the host's memory, and what limits them there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from arriero.engine import ListedDevice, find_engine, list_devices
from arriero.machine import Nvml, Pool, free_host_memory, pools
from arriero.process import free_port, start
from tests.machine import trees
from tests.machine.fake_nvml import FakeNvml
from tests.machine.trees import GIB
from tests.process import watching


def device(name: str, about: str, total: float, free: float) -> ListedDevice:
    return ListedDevice(name, about, int(total * GIB), int(free * GIB))


def test_a_card_of_its_own(tmp_path: Path) -> None:
    """24 GB of card in a machine with 24 GB: the same size is not the same memory."""
    trees.host(tmp_path, 24 * GIB, 20 * GIB)
    listed = [device("CUDA0", "NVIDIA GeForce RTX 4090", 23.9, 23)]
    host, card = pools(listed, root=tmp_path)
    assert (host.name, host.devices, host.free) == ("host", ("host",), 20 * GIB)
    assert card == Pool(
        name="CUDA0",
        devices=("CUDA0",),
        total=int(23.9 * GIB),
        free=23 * GIB,
        limited_by="memory of NVIDIA GeForce RTX 4090",
        listed=tuple(listed),
    )
    assert host.physical == 24 * GIB


@pytest.mark.parametrize(
    "about", ["AMD Radeon Graphics (RADV GFX1151)", "Radeon 8060S Graphics", "AMD Radeon Graphics"]
)
def test_strix_halo_is_one_pool_limited_by_gtt(tmp_path: Path, about: str) -> None:
    trees.host(tmp_path, 125 * GIB, 118 * GIB)
    trees.amd_card(tmp_path, "card1", "0000:c5:00.0", (GIB // 2, GIB // 4), (62 * GIB, 2 * GIB))
    (pool,) = pools([device("Vulkan0", about, 62.5, 60.25)], root=tmp_path)
    assert (pool.name, pool.devices) == ("shared", ("host", "Vulkan0"))
    assert pool.limited_by == "GTT size (ttm.pages_limit, amdgpu.gttsize)"
    assert pool.total == 62 * GIB + GIB // 2
    assert pool.free == 60 * GIB + GIB // 4
    assert pool.knob.startswith("ttm.pages_limit")
    assert "amd-ttm --set" in pool.move_with
    assert pool.listed[0].free == int(60.25 * GIB)


def test_strix_halo_with_a_large_gtt_is_limited_by_the_host(tmp_path: Path) -> None:
    trees.host(tmp_path, 125 * GIB, 80 * GIB)
    trees.amd_card(tmp_path, "card1", "0000:c5:00.0", (GIB // 2, 0), (120 * GIB, 0))
    (pool,) = pools([device("ROCm0", "AMD Radeon 8060S", 120.5, 120)], root=tmp_path)
    assert (pool.free, pool.limited_by) == (80 * GIB, "MemAvailable")
    assert (pool.knob, pool.move_with) == ("", "")


def test_strix_halo_whose_firmware_took_96_gb_has_two_pools(tmp_path: Path) -> None:
    trees.host(tmp_path, 31 * GIB, 28 * GIB)
    trees.amd_card(tmp_path, "card1", "0000:c5:00.0", (96 * GIB, GIB), (15 * GIB, 0))
    host, card = pools([device("ROCm0", "Radeon 8060S Graphics", 96, 95)], root=tmp_path)
    assert (host.name, card.name, card.free) == ("host", "ROCm0", 95 * GIB)


def test_an_apu_that_says_it_has_the_whole_ram_free(tmp_path: Path) -> None:
    """More free than total, as drivers of unified memory have said: the card is asked instead."""
    trees.host(tmp_path, 125 * GIB, 100 * GIB)
    trees.amd_card(tmp_path, "card0", "0000:c5:00.0", (GIB // 2, 0), (62 * GIB, 0))
    (pool,) = pools([device("ROCm0", "AMD Radeon Graphics", 62.5, 118)], root=tmp_path)
    assert pool.usable
    assert "more free" in pool.note
    assert pool.free == 62 * GIB + GIB // 2


def test_an_amd_card_beside_an_apu(tmp_path: Path) -> None:
    trees.host(tmp_path, 64 * GIB, 60 * GIB)
    trees.amd_card(tmp_path, "card0", "0000:03:00.0", (24 * GIB, 0), (32 * GIB, 0))
    trees.amd_card(tmp_path, "card1", "0000:c5:00.0", (GIB // 2, 0), (32 * GIB, 0))
    listed = [
        device("Vulkan0", "AMD Radeon RX 7900 XTX (RADV NAVI31)", 24, 23.9),
        device("Vulkan1", "AMD Radeon Graphics (RADV RAPHAEL_MENDOCINO)", 32.5, 32),
    ]
    shared, card = pools(listed, root=tmp_path)
    assert shared.devices == ("host", "Vulkan1")
    assert shared.free == 32 * GIB + GIB // 2
    assert card.devices == ("Vulkan0",)


def test_gb10_is_one_pool(tmp_path: Path) -> None:
    trees.host(tmp_path, 119 * GIB, 110 * GIB)
    (pool,) = pools([device("CUDA0", "NVIDIA GB10", 119.6, 109.5)], root=tmp_path)
    assert (pool.name, pool.devices) == ("shared", ("host", "CUDA0"))
    assert (pool.free, pool.limited_by) == (int(109.5 * GIB), "MemAvailable")
    assert pool.knob == ""


def test_a_card_whose_driver_knows_no_memory_of_its_own(tmp_path: Path) -> None:
    trees.host(tmp_path, 119 * GIB, 110 * GIB)
    driver = Nvml(FakeNvml(cards=[("NVIDIA N1X", None)]))
    listed = [device("CUDA0", "NVIDIA N1X", 119.6, 109.9)]
    (pool,) = pools(listed, root=tmp_path, driver=driver)
    assert pool.name == "shared"


def test_apple_is_limited_by_what_may_be_wired(tmp_path: Path) -> None:
    trees.host(tmp_path, 64 * GIB, 50 * GIB)
    (pool,) = pools([device("MTL0", "Apple M3 Max", 48, 48)], root=tmp_path, platform="darwin")
    assert pool.name == "shared"
    assert (pool.free, pool.limited_by) == (48 * GIB, "MemAvailable")
    (pool,) = pools([device("MTL0", "Apple M3 Max", 40, 36)], root=tmp_path, platform="darwin")
    assert (pool.total, pool.free, pool.limited_by) == (
        40 * GIB,
        36 * GIB,
        "iogpu.wired_limit_mb",
    )
    assert (pool.knob, pool.move_with) == (
        "iogpu.wired_limit_mb",
        "sudo sysctl iogpu.wired_limit_mb=N",
    )


@pytest.mark.parametrize(
    ("about", "shared"),
    [
        ("Intel(R) UHD Graphics 770 (ADL-S GT1)", True),
        ("Intel(R) Arc(TM) 140V GPU (LNL)", True),
        ("Intel(R) Iris(R) Xe Graphics (TGL GT2)", True),
        ("Intel(R) Arc(tm) A770 Graphics (DG2)", False),
        ("Intel(R) Arc(TM) Pro B50 Graphics (BMG G21)", False),
        ("Intel(R) Iris(R) Xe MAX Graphics (DG1)", False),
    ],
)
def test_intel_graphics_and_intel_cards(tmp_path: Path, about: str, shared: bool) -> None:
    trees.host(tmp_path, 64 * GIB, 50 * GIB)
    found = pools([device("Vulkan0", about, 15, 14)], root=tmp_path)
    assert (len(found) == 1) == shared
    if shared:
        assert (found[0].free, found[0].limited_by) == (14 * GIB, "what the driver lends Vulkan0")


@pytest.mark.parametrize(
    ("total", "free", "note"), [(0, 0, "no memory"), (8, 9, "more free"), (8, 0, "no free memory")]
)
def test_what_cannot_be_true_is_not_usable(
    tmp_path: Path, total: float, free: float, note: str
) -> None:
    trees.host(tmp_path, 64 * GIB, 50 * GIB)
    _, card = pools([device("ROCm0", "AMD Instinct MI50", total, free)], root=tmp_path)
    assert not card.usable
    assert note in card.note


def test_a_worker_elsewhere_is_a_pool_of_its_own_whatever_its_size(tmp_path: Path) -> None:
    trees.host(tmp_path, 64 * GIB, 50 * GIB)
    listed = [device("RPC0", "10.0.0.2:50052", 64, 64), device("RPC1", "127.0.0.1:50052", 24, 23)]
    host, *workers = pools(listed, root=tmp_path)
    assert (host.name, [pool.name for pool in workers]) == ("host", ["RPC0", "RPC1"])
    assert {pool.limited_by for pool in workers} == {"what the worker reports"}
    assert "reports all" in workers[0].note
    assert workers[1].note == ""


@pytest.mark.engine
def test_a_real_cpu_worker_on_this_machine_shares_the_host(
    engine_path: Callable[[int], Path],
) -> None:
    """It reports all of the RAM as free."""
    path = engine_path(10434)
    environ = {"LD_LIBRARY_PATH": str(path.parent), "PATH": "/usr/bin:/bin"}
    port = free_port()
    worker = [str(path.with_name("ggml-rpc-server")), "-p", str(port)]
    # What the worker prints to a pipe comes only at its end, so its port is watched.
    with start(worker, env=environ, on_line=print):
        assert watching.eventually(lambda: watching.listens(port))
        engine = find_engine(None, option=str(path), environ=environ, cwd=Path.cwd())
        listed = list_devices(engine, environ, rpc=f"127.0.0.1:{port}")
    assert listed
    (pool,) = pools(listed)
    assert (pool.name, pool.devices) == ("shared", ("host", "RPC0"))
    assert listed[0].free == listed[0].total
    assert (pool.free or 0) < listed[0].free


@pytest.mark.engine
def test_software_vulkan_of_the_real_engine_shares_the_host(
    engine_path: Callable[[int], Path],
) -> None:
    """It reports 2048 MiB and keeps to no limit."""
    environ = {"GGML_VK_VISIBLE_DEVICES": "0", "PATH": "/usr/bin:/bin"}
    path = str(engine_path(10434))
    engine = find_engine("llama-server", option=path, environ=environ, cwd=Path.cwd())
    listed = list_devices(engine, environ)
    if not listed or "llvmpipe" not in listed[0].description:
        pytest.skip("no llvmpipe here")
    (pool,) = pools(listed)
    assert (pool.name, pool.devices) == ("shared", ("host", "Vulkan0"))
    assert pool.limited_by != "what the driver lends Vulkan0"
    assert "nothing enforces" in pool.note


def test_free_host_memory_is_that_of_its_pool_unless_that_cannot_be_true() -> None:
    card = Pool("CUDA0", ("CUDA0",), 24, 20, "")
    host = Pool("shared", ("host", "Vulkan0"), 16, 12, "")
    assert free_host_memory((card, host)) == 12
    assert free_host_memory((replace(host, usable=False), card)) is None
    assert free_host_memory((card,)) is None
