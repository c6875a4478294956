"""Turn the engine's devices into pools: which share the host's memory, and what limits them."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from arriero.base.buffers import HOST
from arriero.base.sizes import human
from arriero.machine.drm import AmdCard, amd_cards
from arriero.machine.host import ROOT, ULIMIT, host_pool, physical_total
from arriero.machine.model import Pool
from arriero.machine.nvml import Nvml, nvml

if TYPE_CHECKING:
    from arriero.engine import ListedDevice

SOFTWARE: Final = re.compile(r"llvmpipe|lavapipe|swiftshader", re.IGNORECASE)
_NVIDIA_SHARED: Final = re.compile(r"\b(GB10|Orin|Thor|Xavier|Tegra)\b")
_INTEL: Final = re.compile(r"\bIntel\b.*\b(Graphics|Arc|Iris|UHD|HD)\b", re.IGNORECASE)
_INTEL_CARD: Final = re.compile(r"\b[AB]\d{2,3}[A-Z]?\b|\bDG[12]\b|\bBMG\b", re.IGNORECASE)
_AMD: Final = re.compile(r"\b(AMD|Radeon|RADV|gfx\d+)\b", re.IGNORECASE)
_AMD_SHARED: Final = re.compile(
    r"\b(\d{3}M|80[456]0S|gfx1103|gfx115\d|strix\w*|phoenix|rembrandt|renoir|raven)\b",
    re.IGNORECASE,
)
_CARD_MAKERS: Final = re.compile(r"\b(NVIDIA|GeForce|Tesla|AMD|Radeon|Instinct)\b", re.IGNORECASE)
_LOOPBACK: Final = re.compile(r"(127\.[\d.]+|localhost|\[?::1\]?)(:\d+)?\Z", re.IGNORECASE)
_SAME: Final = 0.05
"""Two sizes this close count as equal, and two readings of free memory as the same memory."""


def pools(
    devices: Sequence[ListedDevice],
    *,
    root: Path = ROOT,
    platform: str = sys.platform,
    driver: Nvml | None = None,
) -> tuple[Pool, ...]:
    """The host and every listed device as pools, the host's first.

    Devices without memory of their own form one pool ``shared`` with the host. Its free memory is
    the least of what the host has and what each driver still lends. Such devices are recognised by
    the chip's name (GB10, Jetson, Intel graphics, Apple, software Vulkan), by a driver that reports
    no memory of the card's own, or by their size: more than the card's VRAM, or all of the host's
    (such as a CPU worker on loopback). Only software Vulkan and workers were tested for real, the
    others with directory trees.

    Args:
        root: The directory of ``/proc`` and ``/sys``.
        driver: NVML; the installed one by default.
    """
    cards = amd_cards(root)
    ram = physical_total(root)
    host = replace(host_pool(root), physical=ram)
    if host.limited_by == ULIMIT:
        host = replace(host, knob=ULIMIT, move_with="ulimit -v unlimited")
    driver = driver or nvml()
    bare = {card.name for card in driver.cards() if card.total is None} if driver else set()
    shared: list[ListedDevice] = []
    own: list[Pool] = []
    for device in devices:
        if _shares(device, cards, ram, bare):
            shared.append(device)
        else:
            own.append(_own_pool(device))
    first = _shared_pool(host, shared, cards, platform) if shared else host
    return (first, *own)


def free_host_memory(pools: Sequence[Pool]) -> int | None:
    """Free bytes of the pool with host memory; None if unknown."""
    return next((p.free for p in pools if HOST in p.devices and p.usable), None)


def _shares(
    device: ListedDevice,
    cards: Sequence[AmdCard],
    ram: int | None,
    bare: set[str],
) -> bool:
    about = device.description
    if device.name.startswith("RPC"):
        # A worker on this machine that computes on the CPU.
        return bool(_LOOPBACK.match(about)) and ram is not None and _near(device.total, ram)
    if SOFTWARE.search(about) or _NVIDIA_SHARED.search(about) or about in bare:
        return True
    if about.startswith("Apple") or (_INTEL.search(about) and not _INTEL_CARD.search(about)):
        return True
    if _AMD.search(about):
        return bool(_lenders(device, cards)) if cards else bool(_AMD_SHARED.search(about))
    return ram is not None and _near(device.total, ram) and not _CARD_MAKERS.search(about)


def _lenders(device: ListedDevice, cards: Sequence[AmdCard]) -> list[AmdCard]:
    """Cards that this device may be if it uses more than its own VRAM, the likeliest first."""
    if any(_near(device.total, card.vram_total) for card in cards):
        return []
    found = [card for card in cards if device.total > card.vram_total]
    return sorted(found, key=lambda card: abs(device.total - card.vram_total - card.gtt_total))


def _near(first: int, second: int) -> bool:
    return abs(first - second) <= _SAME * max(first, second)


def _problem(device: ListedDevice) -> str:
    """Why the driver's numbers for a device cannot be true; empty if they can."""
    if device.total <= 0:
        return "the driver reports no memory at all"
    if device.free > device.total:
        return f"the driver reports more free memory ({human(device.free)}) than there is"
    if device.free == 0:
        return "the driver reports no free memory: it is in use, or the driver does not know it"
    return ""


def _own_pool(device: ListedDevice) -> Pool:
    problem = note = _problem(device)
    remote = device.name.startswith("RPC")
    if remote and device.free == device.total and not problem:
        note = "a worker on a CPU reports all of its memory as free, whatever is in use"
    return Pool(
        name=device.name,
        devices=(device.name,),
        total=device.total,
        free=device.free,
        limited_by="what the worker reports" if remote else f"memory of {device.description}",
        usable=not problem,
        note=note,
        listed=(device,),
    )


def _shared_pool(
    host: Pool, devices: Sequence[ListedDevice], cards: Sequence[AmdCard], platform: str
) -> Pool:
    pool = host
    notes = []
    for device in devices:
        problem = _problem(device)
        if SOFTWARE.search(device.description):
            notes.append(f"{device.name} is software: nothing enforces its {human(device.total)}")
            continue
        if problem:
            notes.append(f"{device.name}: {problem}")
            lent = _gtt(device, cards)
        else:
            lent = _gtt(device, cards) or _lent(device, platform)
        if lent is None:
            continue
        free = lent.free if pool.free is None else min(pool.free, lent.free or 0)
        if pool.free is None or (lent.free or 0) < pool.free * (1 - _SAME):
            pool = lent
        pool = replace(pool, free=free)
    return replace(
        pool,
        name="shared",
        devices=("host", *(device.name for device in devices)),
        usable=host.usable,
        note="; ".join(notes),
        listed=tuple(devices),
        physical=host.physical,
    )


def _lent(device: ListedDevice, platform: str) -> Pool:
    """How much host memory a driver says that it lends."""
    pool = Pool(device.name, (device.name,), device.total, device.free, "")
    if platform == "darwin":
        knob = "iogpu.wired_limit_mb"
        return replace(pool, limited_by=knob, knob=knob, move_with=f"sudo sysctl {knob}=N")
    return replace(pool, limited_by=f"what the driver lends {device.name}")


def _gtt(device: ListedDevice, cards: Sequence[AmdCard]) -> Pool | None:
    """What amdgpu lends to an APU: its carve-out and GTT, with the parameters that set the size.

    ``amd-ttm`` comes with AMD's debug tools and writes the same parameter, in pages of 4 KiB.
    """
    lenders = _lenders(device, cards) if _AMD.search(device.description) else []
    if not lenders:
        return None
    card = lenders[0]
    total = card.vram_total + card.gtt_total
    used = card.vram_used + card.gtt_used
    return Pool(
        name=device.name,
        devices=(device.name,),
        total=total,
        free=max(total - used, 0),
        limited_by="GTT size (ttm.pages_limit, amdgpu.gttsize)",
        knob="ttm.pages_limit (amdgpu.gttsize on older kernels)",
        move_with="amd-ttm --set GIB, or on the kernel's command line ttm.pages_limit=GIB*262144",
    )
