"""What is seen of an engine while it runs: its log, its memory, and whether it hangs.

Measuring must not change the result: readiness is read from the log instead of polled, because each
HTTP thread that a poll wakes takes memory.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

import psutil

from arriero.base.words import Phase
from arriero.logs import LogReader, Sighting
from arriero.logs.model import Effective, Reading
from arriero.process import Running
from arriero.record import Sample
from arriero.trial.spec import Bench

LOG_TAIL: Final = 60
MAX_SAMPLES: Final = 240
_TICK: Final = 0.02
_SETTLE: Final = 0.4
"""Seconds without a new thread or mapping after the ready line; a server may still die of one."""
_SETTLE_AT_MOST: Final = 3.0
_STOPPED_FOR: Final = 5.0
"""Seconds a process may be in the stopped state before it counts as hanging."""


class Watch:
    """The log and the samples of one running engine, from its start on."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.began = time.monotonic()
        self.lines = 0
        self.tail: list[str] = []
        self.samples: list[Sample] = []
        self.device_peak: dict[str, int] = {}
        self.requests = 0
        """How many were answered so far; each sample tells it."""
        self._reader = LogReader()
        self._lock = threading.Lock()
        self._interval = 0.25

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.began

    # the log

    # The drain thread calls this; everything else runs in the event loop.
    def on_line(self, line: str) -> None:
        with self._lock:
            self.lines += 1
            self._reader.feed(line)
            self.tail.append(line[:600])
            if len(self.tail) > LOG_TAIL:
                del self.tail[0]

    def signs(self) -> Mapping[str, Sighting]:
        with self._lock:
            return dict(self._reader.signs)

    def effective(self) -> Effective:
        with self._lock:
            return self._reader.effective

    def read(self, status: int | None) -> tuple[Reading, Phase | None]:
        """What the whole log says of an engine that ended with ``status``, and its last phase."""
        with self._lock:
            return self._reader.readings(status)[0], self._reader.phase

    # samples

    async def keep_sampling(self, running: Running) -> None:
        """Take samples until this task is cancelled."""
        while True:
            await self.sample(running)
            await asyncio.sleep(self._interval)

    async def sample(self, running: Running) -> None:
        memory = running.memory()
        device = dict(self.bench.device_memory())
        for name, used in device.items():
            self.device_peak[name] = max(self.device_peak.get(name, 0), used)
        self.samples.append(
            Sample(
                at=round(self.elapsed, 3),
                address_space=memory.address_space,
                anonymous=memory.anonymous,
                requests=self.requests,
                device=device,
            )
        )
        if len(self.samples) > MAX_SAMPLES:
            del self.samples[1:-1:2]
            self._interval *= 2

    # waiting

    async def until_ready(self, running: Running) -> str | None:
        """None if it is ready or has ended; otherwise why it counts as hanging."""
        patience = self.bench.patience
        pulse, since = None, time.monotonic()
        stopped = StoppedClock(running.pid)
        while running.poll() is None:
            with self._lock:
                if self._reader.ready:
                    return None
            await asyncio.sleep(_TICK)
            now = time.monotonic()
            beat = _pulse(running.pid, self.lines)
            if beat != pulse:
                pulse, since = beat, now
            if (hang := stopped.too_long(now)) is not None:
                return hang
            if now - since > patience.stall_s:
                return f"no log line, CPU time or memory change for {patience.stall_s:.0f} s"
            if now - self.began > min(patience.ready_s, patience.whole_s):
                return f"not ready after {now - self.began:.0f} s"
        return None

    async def until_settled(self, running: Running) -> None:
        """Wait until the server has started its last threads, or has died of them."""
        began = since = time.monotonic()
        before: object = None
        while running.poll() is None and time.monotonic() - began < _SETTLE_AT_MOST:
            memory = running.memory()
            now = (memory.address_space, memory.threads)
            if now != before:
                before, since = now, time.monotonic()
            elif time.monotonic() - since > _SETTLE:
                break
            await asyncio.sleep(_TICK)
        await self.sample(running)

    async def until_loaded(self, load: asyncio.Task[Any], running: Running) -> str | None:
        """None if the load has ended; otherwise why the engine counts as hanging."""
        stopped = StoppedClock(running.pid)
        while not load.done():
            await asyncio.wait({load}, timeout=0.25)
            now = time.monotonic()
            if (hang := stopped.too_long(now)) is not None:
                return hang
            if now - self.began > self.bench.patience.whole_s:
                return f"the load did not finish in {now - self.began:.0f} s"
        return None


class StoppedClock:
    """How long a process has been in the stopped state (T)."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._since: float | None = None

    def too_long(self, now: float) -> str | None:
        """Why it counts as hanging; None as long as it does not."""
        self._since = (self._since or now) if _is_stopped(self._pid) else None
        if self._since is not None and now - self._since > _STOPPED_FOR:
            return "the process is stopped (state T)"
        return None


def _pulse(pid: int, lines: int) -> object:
    """Something that changes as long as the process does anything."""
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            cpu = process.cpu_times()
            return (lines, cpu.user, cpu.system, process.memory_info().rss >> 16)
    except psutil.Error:
        return (lines,)


def _is_stopped(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_STOPPED
    except psutil.Error:
        return False
