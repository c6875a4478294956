"""Who holds device memory, how much is in use, and how to wait until it is free again."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from arriero.base.sizes import MIB, human
from arriero.machine.drm import amd_cards, clients
from arriero.machine.host import ROOT
from arriero.machine.model import Holder
from arriero.machine.nvml import Nvml, nvml

VISIBILITY: Final = (
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "NVIDIA_VISIBLE_DEVICES",
    "GGML_CUDA_ENABLE_UNIFIED_MEMORY",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
    "HSA_OVERRIDE_GFX_VERSION",
    "GGML_VK_VISIBLE_DEVICES",
    "GGML_VK_ALLOW_SYSMEM_FALLBACK",
    "VK_ICD_FILENAMES",
    "VK_DRIVER_FILES",
    "MESA_VK_DEVICE_SELECT",
    "ONEAPI_DEVICE_SELECTOR",
    "SYCL_DEVICE_ALLOWLIST",
    "ZE_AFFINITY_MASK",
    "ZE_FLAT_DEVICE_HIERARCHY",
    "ASCEND_RT_VISIBLE_DEVICES",
    "MUSA_VISIBLE_DEVICES",
    "GGML_METAL_DEVICES",
)
"""Variables that decide which devices a process sees, in which order, and which memory it uses."""
_POLL_SECONDS: Final = 0.2


def visibility(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of `VISIBILITY` that are set, even to nothing: that hides every device."""
    return {name: environ[name] for name in VISIBILITY if name in environ}


def holders(*, root: Path = ROOT, driver: Nvml | None = None) -> tuple[Holder, ...]:
    """Processes that hold device memory, as far as the drivers show them, the largest first."""
    driver = driver or nvml()
    found = [Holder(one.pid, _name(one.pid), one.device, one.bytes) for one in clients(root)]
    if driver:
        found += [
            Holder(pid, _name(pid), f"nvml{index}", used) for index, pid, used in driver.processes()
        ]
    return tuple(sorted(found, key=lambda one: (-(one.bytes or 0), one.pid)))


def _name(pid: int) -> str:
    import psutil  # late: few processes have memory on a card

    try:
        return psutil.Process(pid).name()
    except psutil.Error:
        return "?"


def device_memory(*, root: Path = ROOT, driver: Nvml | None = None) -> dict[str, int]:
    """Bytes in use on each card, by the driver's own name (``nvml0``, ``card1``: VRAM and GTT).

    Empty if no driver reports it. Cheap enough for sampling.
    """
    driver = driver or nvml()
    used = {card.name: card.vram_used + card.gtt_used for card in amd_cards(root)}
    if driver:
        used |= {f"nvml{card.index}": card.used for card in driver.cards() if card.used is not None}
    return used


def wait_for_memory(
    before: Mapping[str, int],
    *,
    timeout: float,
    tolerance: int = 64 * MIB,
    on_wait: Callable[[str], None] = lambda _: None,
    read: Callable[[], Mapping[str, int]] = device_memory,
) -> str:
    """Wait until no card uses more than before, give or take ``tolerance`` bytes.

    Returns what is still in use after ``timeout`` seconds (``nvml0: 512.00 MiB more in use than
    before``), or an empty text. ``on_wait`` gets the same text while waiting. Host memory of a
    process that has ended is already free.
    """
    deadline = time.monotonic() + timeout
    while True:
        now = read()
        missing = "; ".join(
            f"{name}: {human(now[name] - used)} more in use than before"
            for name, used in before.items()
            if now.get(name, 0) > used + tolerance
        )
        left = deadline - time.monotonic()
        if not missing or left <= 0:
            return missing
        on_wait(missing)
        time.sleep(min(_POLL_SECONDS, left))
