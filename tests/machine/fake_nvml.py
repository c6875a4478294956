"""A stand-in for ``pynvml`` with the semantics that NVML documents."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace


class FakeNvml:
    """Cards are names and (total, used), or None where memory is "not supported"."""

    class NVMLError(Exception):
        pass

    def __init__(
        self,
        cards: Sequence[tuple[str | bytes, tuple[int, int] | None]] = (),
        compute: dict[int, list[tuple[int, int | None]]] | None = None,
        graphics: dict[int, list[tuple[int, int | None]]] | None = None,
        *,
        loads: bool = True,
        lost: Sequence[int] = (),
    ) -> None:
        self.cards, self.loads, self.lost = cards, loads, lost
        self.compute, self.graphics = compute or {}, graphics or {}

    def nvmlInit(self) -> None:  # noqa: N802 - NVML's names
        if not self.loads:
            raise self.NVMLError("Driver Not Loaded")

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        if index in self.lost:
            raise self.NVMLError("GPU is lost")
        return index

    def nvmlDeviceGetName(self, handle: int) -> str | bytes:  # noqa: N802
        return self.cards[handle][0]

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:  # noqa: N802
        sizes = self.cards[handle][1]
        if sizes is None:
            raise self.NVMLError("Not Supported")
        return SimpleNamespace(total=sizes[0], used=sizes[1], free=sizes[0] - sizes[1])

    def _processes(self, listed: list[tuple[int, int | None]]) -> list[SimpleNamespace]:
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in listed]

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[SimpleNamespace]:  # noqa: N802
        return self._processes(self.compute.get(handle, []))

    def nvmlDeviceGetGraphicsRunningProcesses(self, handle: int) -> list[SimpleNamespace]:  # noqa: N802
        if self.cards[handle][1] is None:
            raise self.NVMLError("Not Supported")
        return self._processes(self.graphics.get(handle, []))
