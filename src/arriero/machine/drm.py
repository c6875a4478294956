"""AMD and Intel cards as the kernel's DRM drivers show them: sysfs and ``/proc/PID/fdinfo``.

This was tested only with directory trees in the kernel's format, not with such a card.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from arriero.machine import files
from arriero.machine.host import ROOT

_UNITS: Final = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_REGION: Final = re.compile(r"drm-(memory|total)-([\w-]+):\s*(\d{1,18})\s*(\w*)")
_CEILING: Final = 4096


@dataclass(frozen=True)
class AmdCard:
    """An amdgpu card, in bytes.

    VRAM is its own memory (on an APU: RAM that the firmware reserved). GTT is host memory that it
    may use.
    """

    name: str
    address: str
    vram_total: int
    vram_used: int
    gtt_total: int
    gtt_used: int


def amd_cards(root: Path = ROOT) -> tuple[AmdCard, ...]:
    """Every card whose driver shows ``mem_info_vram_total``, by name (``card0``)."""
    found = []
    for path in _cards(root):
        device = path / "device"
        sizes = [
            files.number(device / f"mem_info_{kind}_{what}")
            for kind in ("vram", "gtt")
            for what in ("total", "used")
        ]
        if sizes[0] is not None:
            vram_total, vram_used, gtt_total, gtt_used = (size or 0 for size in sizes)
            found.append(
                AmdCard(path.name, _address(path), vram_total, vram_used, gtt_total, gtt_used)
            )
    return tuple(found)


def _cards(root: Path) -> list[Path]:
    directory = root / "sys/class/drm"
    try:
        names = [path for path in directory.iterdir() if re.fullmatch(r"card\d+", path.name)]
    except OSError:
        return []
    return sorted(names, key=lambda path: int(path.name[4:]))[:64]


def _address(card: Path) -> str:
    """The PCI address, which is the name of the directory that ``device`` points to."""
    try:
        return (card / "device").resolve().name
    except OSError:
        return ""


@dataclass(frozen=True)
class Client:
    """The memory of one process on one card, in bytes."""

    pid: int
    device: str
    bytes: int


def clients(root: Path = ROOT) -> Iterator[Client]:
    """Every process that holds memory through a DRM device or through AMD's compute driver.

    Processes of other users are visible only with the right to inspect them.
    """
    names = {_address(path): path.name for path in _cards(root)}
    compute = dict(_kfd_clients(root, names))
    for pid in _pids(root):
        held = _drm_held(root / "proc" / str(pid), names)
        for (owner, device), size in compute.items():
            if owner == pid:
                # Compute memory may or may not be in fdinfo too, depending on the kernel.
                held[device] = max(held.get(device, 0), size)
        for device, size in held.items():
            if size:
                yield Client(pid, device, size)


def _pids(root: Path) -> list[int]:
    try:
        return [int(path.name) for path in (root / "proc").iterdir() if path.name.isdecimal()]
    except OSError:
        return []


def _drm_held(process: Path, names: dict[str, str]) -> dict[str, int]:
    held: dict[tuple[str, str], int] = {}
    try:
        descriptors = list((process / "fd").iterdir())[:_CEILING]
    except OSError:
        return {}
    for descriptor in descriptors:
        try:
            if not str(descriptor.readlink()).startswith("/dev/dri/"):
                continue
        except OSError:
            continue
        text = files.text(process / "fdinfo" / descriptor.name)
        address, client = _field(text, "drm-pdev"), _field(text, "drm-client-id")
        # Descriptors that were duplicated show the same client again.
        held[names.get(address, address), client or descriptor.name] = region_bytes(text)
    result: dict[str, int] = {}
    for (device, _), size in held.items():
        result[device] = result.get(device, 0) + size
    return result


def _field(text: str, name: str) -> str:
    for line in text.splitlines():
        if line.startswith(f"{name}:"):
            return line.partition(":")[2].strip()
    return ""


def region_bytes(fdinfo: str) -> int:
    """The sum over memory regions; ``drm-memory-*`` (older) and ``drm-total-*`` mean the same."""
    regions: dict[str, int] = {}
    for _, region, count, unit in _REGION.findall(fdinfo):
        regions[region] = max(regions.get(region, 0), int(count) * _UNITS.get(unit, 1))
    return sum(regions.values())


def _kfd_clients(root: Path, names: dict[str, str]) -> Iterator[tuple[tuple[int, str], int]]:
    """Process and card → VRAM of ROCm programs (``/sys/class/kfd/kfd/proc/PID/vram_GPUID``)."""
    kfd = root / "sys/class/kfd/kfd"
    try:
        processes = list((kfd / "proc").iterdir())[:_CEILING]
    except OSError:
        return
    nodes = {}
    for node in list((kfd / "topology/nodes").glob("*"))[:256]:
        gpu = files.text(node / "gpu_id").strip()
        minor = files.table(node / "properties").get("drm_render_minor")
        address = _address(root / "sys/class/drm" / f"renderD{minor}")
        nodes[gpu] = names.get(address, address)
    for process in processes:
        if not process.name.isdecimal():
            continue
        for path in process.glob("vram_*"):
            gpu = path.name.removeprefix("vram_")
            size = files.number(path)
            if size:
                yield (int(process.name), nodes.get(gpu, f"kfd {gpu}")), size
