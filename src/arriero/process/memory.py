"""MemoryUse of a process tree, read cheaply enough to do it a hundred times a second."""

from __future__ import annotations

import sys
import threading
import time
from typing import Final

from arriero.process import cgroup as cgroups
from arriero.process.model import MemoryUse

if sys.platform == "linux":
    from arriero.process import guard
else:
    import psutil

_TREE_SECONDS: Final = 0.25


class Sampler:
    """Samples one tree. The list of its processes is renewed every quarter of a second, more
    seldom on a machine with so many processes that finding them takes long.
    """

    def __init__(self, pid: int, cgroup: cgroups.MemoryCgroup | None = None) -> None:
        self._cgroup = cgroup
        self._read = _Reader(pid)
        self._last = MemoryUse()
        self._ended = False
        self._lock = threading.Lock()

    def sample(self) -> MemoryUse:
        """MemoryUse now; once it has ended, only the last known marks."""
        with self._lock:
            if not self._ended:
                self._last = _merge(self._last, self._read(), *self._read_cgroup())
            return self._last

    def note_end(self, address_space: int, rss: int, anonymous: int, cgroup: int | None) -> None:
        """It has ended, with these marks as the guard saw them (0 or None: not seen)."""
        with self._lock:
            seen = MemoryUse(
                address_space_peak=address_space or None,
                rss_peak=rss or None,
                anonymous_peak=anonymous or None,
            )
            self._last = _merge(self._last, seen, None, cgroup)
            self._ended = True

    def _read_cgroup(self) -> tuple[int | None, int | None]:
        if self._cgroup is None:
            return None, None
        return self._cgroup.usage(), self._cgroup.peak()


if sys.platform == "linux":

    class _Reader:
        def __init__(self, pid: int) -> None:
            self.pid = pid
            self.others: list[int] = []
            self.list_at = 0.0

        def __call__(self) -> MemoryUse:
            began = time.monotonic()
            if began >= self.list_at:
                self.others = guard.descendants(self.pid)
                now = time.monotonic()
                self.list_at = now + max(_TREE_SECONDS, 50 * (now - began))
            status = guard.read_file(f"/proc/{self.pid}/status", 8192)
            if status is None or (size := guard.kibibytes(status, b"VmSize")) is None:
                return MemoryUse()
            rss = anonymous = threads = 0
            below = (guard.read_file(f"/proc/{pid}/status", 8192) or b"" for pid in self.others)
            for text in (status, *below):
                rss += guard.kibibytes(text, b"VmRSS") or 0
                anonymous += guard.kibibytes(text, b"RssAnon") or 0
                anonymous += guard.kibibytes(text, b"VmSwap") or 0
                threads += guard.status_number(text, b"Threads") or 0
            return MemoryUse(
                address_space=size,
                address_space_peak=guard.kibibytes(status, b"VmPeak"),
                rss=rss,
                rss_peak=guard.kibibytes(status, b"VmHWM"),
                anonymous=anonymous,
                anonymous_peak=anonymous,
                threads=threads,
            )

else:

    class _Reader:
        """What psutil can tell: no anonymous memory, and peaks only as far as they were sampled."""

        def __init__(self, pid: int) -> None:
            self.pid = pid

        def __call__(self) -> MemoryUse:
            try:
                process = psutil.Process(self.pid)
                infos = [one.memory_info() for one in (process, *process.children(recursive=True))]
                threads = process.num_threads()
            except psutil.Error:
                return MemoryUse()
            rss = sum(int(info.rss) for info in infos)
            size = int(infos[0].vms)
            return MemoryUse(
                address_space=size,
                address_space_peak=size,
                rss=rss,
                rss_peak=rss,
                threads=threads,
            )


def _merge(
    last: MemoryUse, now: MemoryUse, cgroup: int | None, cgroup_peak: int | None
) -> MemoryUse:
    return MemoryUse(
        address_space=now.address_space,
        address_space_peak=_most(last.address_space_peak, now.address_space_peak),
        rss=now.rss,
        rss_peak=_most(last.rss_peak, now.rss_peak),
        anonymous=now.anonymous,
        anonymous_peak=_most(last.anonymous_peak, now.anonymous_peak),
        threads=now.threads,
        cgroup=cgroup,
        cgroup_peak=_most(last.cgroup_peak, cgroup_peak),
    )


def _most(first: int | None, second: int | None) -> int | None:
    if first is None or second is None:
        return second if first is None else first
    return max(first, second)
