"""One process: the start that it is in, the one before, and what is true of all of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from arriero.logs.grammar import Event
from arriero.logs.lines import Line
from arriero.logs.model import EngineTag, Notice
from arriero.logs.story.cause import Cause
from arriero.logs.story.start import KEEP, Start

SET_BACK: Final = 50_000
"""Microseconds by which a line's clock is behind the last one's only if a process began."""
_STEP: Final = 1_000_000
"""The same while a start goes on: threads log a little out of order."""


@dataclass
class Process:
    """What its lines have told so far."""

    child: str | None
    """A router's name for it; None for the server's own."""
    start: Start = field(default_factory=Start)
    ended: list[Start] = field(default_factory=list)
    """The last start before this one that has something to say."""
    starts: int = 1
    last: Line = field(default_factory=lambda: Line(0, ""))
    devices: set[str] = field(default_factory=set)
    eras: set[tuple[int, int]] = field(default_factory=set)
    stamped: bool = False
    engine: EngineTag = field(default_factory=EngineTag)
    restarts: Notice | None = None
    """That a supervisor starts the process again and again, and how often."""

    @property
    def uses_rpc(self) -> bool:
        """Whether the log shows that workers, or a worker's own lines, are part of it."""
        return self.start.worker or any(name.startswith("RPC") for name in self.devices)

    def is_set_back(self, line: Line) -> bool:
        """Whether the clock of ``line`` shows that it is of another process."""
        before = self.start.stamp
        return before is not None and line.stamp is not None and line.stamp < before - SET_BACK

    def clock(self, stamp: int) -> None:
        """Take the clock of a line: a new process is told by a large step back."""
        before = self.start.stamp
        if before is not None and stamp < before - (SET_BACK if self.start.over else _STEP):
            self.next_start()
        self.stamped = True
        self.start.stamp = stamp

    def next_start(self) -> None:
        """What follows is of another start."""
        if self.start.causes or self.start.over:
            self.ended = [self.start]
        self.starts += 1
        self.start = Start()

    def know(self, device: str) -> None:
        """Remember that the log names this device."""
        if len(self.devices) < KEEP:
            self.devices.add(device)

    def name_device(self, cause: Cause, buffer: str) -> None:
        """The buffer of this name is what ``cause`` is about."""
        cause.device = buffer
        self.know(buffer)

    def restarted(self, event: Event, line: Line) -> None:
        """Keep what tells of the most restarts, and how many it says."""
        times = int(event.facts.get("times", 0)) or None
        before = self.restarts
        if before is None or (times or 0) >= (before.count or 0):
            self.restarts = Notice(id="restart_loop", line=line.number, text=line.text, count=times)
