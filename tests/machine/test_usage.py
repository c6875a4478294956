"""Who holds device memory, and waiting until it is given back."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from arriero.machine import Nvml, device_memory, holders, nvml, visibility, wait_for_memory
from arriero.machine.drm import region_bytes
from tests.machine import trees
from tests.machine.fake_nvml import FakeNvml
from tests.machine.trees import GIB

MIB = 1 << 20
AMDGPU = """\
pos:	0
flags:	02100002
drm-driver:	amdgpu
drm-client-id:	{client}
drm-pdev:	0000:c5:00.0
drm-memory-vram:	{vram} KiB
drm-memory-gtt:	{gtt} KiB
drm-memory-cpu:	0 KiB
drm-total-vram:	{vram} KiB
drm-resident-vram:	12 KiB
drm-engine-compute:	12 ns
"""


def test_amd_holders_come_from_fdinfo_once_for_each_client(tmp_path: Path) -> None:
    trees.amd_card(tmp_path, "card1", "0000:c5:00.0", (GIB, GIB // 2), (8 * GIB, 3 * GIB))
    card, render = "/dev/dri/card1", "/dev/dri/renderD129"
    trees.fdinfo(tmp_path, 4100000, 5, render, AMDGPU.format(client=7, vram=1024, gtt=2048))
    trees.fdinfo(tmp_path, 4100000, 6, render, AMDGPU.format(client=7, vram=1024, gtt=2048))
    trees.fdinfo(tmp_path, 4100000, 7, card, AMDGPU.format(client=8, vram=1024, gtt=0))
    trees.fdinfo(tmp_path, 4100000, 8, "/tmp/file", AMDGPU.format(client=9, vram=99999, gtt=0))
    trees.fdinfo(tmp_path, 4100001, 3, render, AMDGPU.format(client=10, vram=0, gtt=0))
    (holder,) = holders(root=tmp_path)
    assert (holder.pid, holder.device, holder.bytes) == (4100000, "card1", 4 * MIB)
    assert device_memory(root=tmp_path) == {"card1": GIB // 2 + 3 * GIB}


def test_rocm_programs_are_seen_by_the_compute_driver(tmp_path: Path) -> None:
    trees.amd_card(tmp_path, "card0", "0000:c5:00.0", (24 * GIB, 0), (8 * GIB, 0))
    kfd = "sys/class/kfd/kfd"
    trees.write(
        tmp_path,
        {
            f"{kfd}/topology/nodes/0/gpu_id": 0,
            f"{kfd}/topology/nodes/0/properties": "cpu_cores_count 16\ndrm_render_minor 0\n",
            f"{kfd}/topology/nodes/1/gpu_id": 51234,
            f"{kfd}/topology/nodes/1/properties": "simd_count 96\ndrm_render_minor 128\n",
            f"{kfd}/proc/4100000/vram_51234": 5 * GIB,
        },
    )
    trees.fdinfo(
        tmp_path, 4100000, 5, "/dev/dri/renderD128", AMDGPU.format(client=7, vram=1024, gtt=0)
    )
    (holder,) = holders(root=tmp_path)
    assert (holder.device, holder.bytes) == ("card0", 5 * GIB)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("drm-total-system0:\t64 MiB\ndrm-shared-system0:\t32 MiB\n", 64 * MIB),
        ("drm-memory-vram: 100\n", 100),
        ("drm-memory-vram: 1 GiB\ndrm-memory-gtt: 1 KiB\n", GIB + 1024),
        ("nothing\n", 0),
        ("drm-memory-vram: minus KiB\n", 0),
    ],
)
def test_units_and_both_names_of_a_region(text: str, size: int) -> None:
    assert region_bytes(text) == size


def test_nvidia_holders_and_what_the_driver_leaves_out(tmp_path: Path) -> None:
    driver = Nvml(
        FakeNvml(
            cards=[("NVIDIA H200", (141 * GIB, 9 * GIB)), (b"NVIDIA T4", (15 * GIB, GIB))],
            compute={0: [(os.getpid(), 8 * GIB)], 1: [(4100001, None)]},
            graphics={0: [(os.getpid(), 8 * GIB)], 1: [(4100002, 64 * MIB)]},
        )
    )
    found = holders(root=tmp_path, driver=driver)
    shown = [(one.pid, one.device, one.bytes) for one in found]
    assert shown == [
        (os.getpid(), "nvml0", 8 * GIB),
        (4100002, "nvml1", 64 * MIB),
        (4100001, "nvml1", None),
    ]
    assert found[0].name.startswith("py")
    assert found[1].name == "?"
    assert device_memory(root=tmp_path, driver=driver) == {"nvml0": 9 * GIB, "nvml1": GIB}


def test_a_lost_card_and_one_without_memory_of_its_own(tmp_path: Path) -> None:
    cards = [("A", (GIB, 0)), ("NVIDIA GB10", None)]
    driver = Nvml(FakeNvml(cards=cards, compute={1: [(4100001, GIB)]}, lost=[0]))
    assert [(card.index, card.total) for card in driver.cards()] == [(1, None)]
    assert device_memory(root=tmp_path, driver=driver) == {}
    (holder,) = holders(root=tmp_path, driver=driver)
    assert (holder.device, holder.bytes) == ("nvml1", GIB)


@pytest.fixture
def _fresh_nvml() -> Iterator[None]:
    nvml.cache_clear()
    yield
    nvml.cache_clear()


@pytest.mark.usefixtures("_fresh_nvml")
def test_no_library_and_no_driver_are_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert nvml() is None
    nvml.cache_clear()
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(loads=False))
    assert nvml() is None
    nvml.cache_clear()
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(cards=[("A", (GIB, 5))]))
    assert device_memory(root=Path("/nonexistent")) == {"nvml0": 5}


def test_waiting_ends_when_memory_is_back() -> None:
    readings = iter([{"nvml0": 5 * GIB}, {"nvml0": 2 * GIB}, {"nvml0": GIB + MIB}])
    heard: list[str] = []
    before = {"nvml0": GIB}
    left = wait_for_memory(before, timeout=60, on_wait=heard.append, read=lambda: next(readings))
    assert left == ""
    assert heard == [
        "nvml0: 4.00 GiB more in use than before",
        "nvml0: 1.00 GiB more in use than before",
    ]


def test_waiting_is_bounded_and_says_what_is_missing() -> None:
    left = wait_for_memory({"card0": 0, "x": 9}, timeout=0, read=lambda: {"card0": GIB})
    assert left == "card0: 1.00 GiB more in use than before"


def test_visibility_keeps_an_empty_one() -> None:
    environ = {"CUDA_VISIBLE_DEVICES": "", "ZE_AFFINITY_MASK": "0", "HOME": "/root"}
    assert visibility(environ) == {"CUDA_VISIBLE_DEVICES": "", "ZE_AFFINITY_MASK": "0"}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_this_machine_can_be_asked() -> None:
    assert all(size >= 0 for size in device_memory().values())
    assert all(one.pid > 0 for one in holders())
