"""NVIDIA's driver, through NVML (``nvidia-ml-py``, the ``nvidia`` extra).

This was tested without the library, and with a stand-in that behaves as NVML documents, but not yet
on an NVIDIA card.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Card:
    """One card in NVML's order (by PCI bus).

    ``total`` and ``used`` are None if the driver says "not supported": cards that use the host's
    memory (GB10, Jetson) have none of their own.
    """

    index: int
    name: str
    total: int | None
    used: int | None


class Nvml:
    """NVML, initialised. If the driver refuses a question, the answer is None."""

    def __init__(self, library: Any) -> None:
        self._library = library
        library.nvmlInit()
        count = self._ask(library.nvmlDeviceGetCount) or 0
        handles = (self._ask(library.nvmlDeviceGetHandleByIndex, index) for index in range(count))
        self._handles = dict(enumerate(handles))

    def _ask(self, question: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return question(*arguments)
        except self._library.NVMLError:
            return None

    def cards(self) -> tuple[Card, ...]:
        found = []
        for index, handle in self._handles.items():
            if handle is None:
                continue
            name = self._ask(self._library.nvmlDeviceGetName, handle) or "NVIDIA"
            memory = self._ask(self._library.nvmlDeviceGetMemoryInfo, handle)
            found.append(
                Card(
                    index=index,
                    name=name.decode(errors="replace") if isinstance(name, bytes) else str(name),
                    total=None if memory is None else int(memory.total),
                    used=None if memory is None else int(memory.used),
                )
            )
        return tuple(found)

    def processes(self) -> Iterator[tuple[int, int, int | None]]:
        """Card index, pid and bytes of every process on a card.

        The driver gives no bytes under WSL or for a process of another container, and a pid may be
        that of the host.
        """
        library = self._library
        questions = (
            library.nvmlDeviceGetComputeRunningProcesses,
            library.nvmlDeviceGetGraphicsRunningProcesses,
        )
        for index, handle in self._handles.items():
            if handle is None:
                continue
            seen: dict[int, int | None] = {}
            for question in questions:
                for process in self._ask(question, handle) or ():
                    used = process.usedGpuMemory
                    seen[int(process.pid)] = None if used is None else int(used)
            for pid, used in seen.items():
                yield index, pid, used


@functools.cache
def nvml() -> Nvml | None:
    """NVML; None if there is no library, no driver, or no right to use it."""
    try:
        library: Any = importlib.import_module("pynvml")
    except ImportError:
        return None
    try:
        return Nvml(library)
    except library.NVMLError:
        return None
