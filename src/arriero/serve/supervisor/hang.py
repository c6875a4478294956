"""Whether an engine hangs or is busy, from outside."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Final

import psutil

from arriero.trial.watch import StoppedClock

_BUSY: Final = 0.02
"""Share of one core from which a process computes; threads that only wait stay below it."""
_SPINS: Final = 30
"""So many times the patience may pass with nothing but CPU time."""
_REMOTE: Final = 5
"""So many times longer where workers compute: this process then waits without CPU time."""


@dataclass(frozen=True)
class Doubt:
    """Why it may hang; ``sure`` if nothing else has to be asked."""

    why: str
    sure: bool = False
    outside: bool = False
    """It was stopped from outside: no request did that."""


class HangClock:
    """Looked at every second or so while an engine loads or serves.

    Busy is: a piece of an answer came, a line was logged, or it computes. Only requests that the
    engine has are waited for; an idle one is left in peace.
    """

    def __init__(
        self, pid: int, patience: float, *, remote: bool = False, tree: bool = False
    ) -> None:
        self._pid = pid
        self._tree = tree
        self._patience = patience * (_REMOTE if remote else 1)
        self._stopped = StoppedClock(pid)
        self._seen: tuple[int, int] | None = None
        self._cpu: tuple[float, float] | None = None
        self._sign = 0.0
        self._beat = 0.0

    def restart(self, now: float) -> None:
        """It has just shown that it works."""
        self._sign = self._beat = now

    def look(self, now: float, requests: int, pieces: int, lines: int) -> Doubt | None:
        """None as long as it does not count as hanging."""
        if (stopped := self._stopped.too_long(now)) is not None:
            return Doubt(stopped, sure=True, outside=True)
        computes = self._computes(now)
        if self._seen != (pieces, lines) or requests == 0 or not self._sign:
            self._seen = (pieces, lines)
            self.restart(now)
        elif computes:
            self._beat = now
        if now - self._beat > self._patience:
            return Doubt(f"no answer, log line or CPU time for {now - self._beat:.0f} s")
        if now - self._sign > self._patience * _SPINS:
            return Doubt(f"no answer or log line for {now - self._sign:.0f} s, though it computes")
        return None

    def _computes(self, now: float) -> bool:
        used = cpu_seconds(self._pid, tree=self._tree)
        if used is None:
            return False
        before, self._cpu = self._cpu, (now, used)
        return before is not None and used - before[1] > _BUSY * (now - before[0])


def cpu_seconds(pid: int, *, tree: bool = False) -> float | None:
    """CPU time of a process so far, with its children if asked for; None if it is gone."""
    try:
        process = psutil.Process(pid)
        times = process.cpu_times()
        below = process.children(recursive=True) if tree else []
    except psutil.Error:
        return None
    return times.user + times.system + sum(cpu_seconds(child.pid) or 0.0 for child in below)


def moved(pid: int) -> int:
    """Something that grows while a process reads or writes: a model that is loaded or fetched."""
    try:
        process = psutil.Process(pid)
        count = process.memory_info().rss >> 20
        if sys.platform == "linux":
            done = process.io_counters()
            count += (done.read_bytes + done.read_chars + done.write_chars) >> 16
    except psutil.Error:
        return 0
    return int(count)
