"""One start of a process: what is gathered of it while its lines come in."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field, fields
from typing import Final

from arriero.base.words import Component, Kind, Phase, Role
from arriero.logs.grammar import Event, Rule, To
from arriero.logs.lines import Line
from arriero.logs.model import Buffer, Notice
from arriero.logs.story.cause import FAR, GROUP, NEAR, RUNTIME, Cause

KEEP: Final = 256
"""Causes, buffers, notices kept of each start; a notice says when there were more."""
LATE: Final = 2
"""Lines that the logger may print after those of a death."""


@dataclass
class Start:
    """One start of a process, as far as the log shows it."""

    causes: list[Cause] = field(default_factory=list)
    deaths: list[Cause] = field(default_factory=list)
    end: Cause | None = None
    buffers: list[Buffer] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    noticed: set[str] = field(default_factory=set)
    values: dict[str, str] = field(default_factory=dict)
    totals: dict[Component, int] = field(default_factory=dict)
    """Bytes of a cache over all devices; a dry run of the fit prints these too."""
    seen: set[Component] = field(default_factory=set)
    """Components of which a size line was printed."""
    whole: set[Component] = field(default_factory=set)
    """Caches of which the size over all devices was printed: that line comes last."""
    measured: list[tuple[Component, str | None, int]] = field(default_factory=list)
    """Component, device, bytes that a dry run printed."""
    recurrent: bool | None = None
    """Whether the model has recurrent layers, if the log says so."""
    said: set[Rule] = field(default_factory=set)
    """What is said once in the life of a process and was said."""
    introduced: bool = False
    """Whether the log shows how it began."""
    reading: bool = False
    """Whether the model's tensors are read, or were."""
    features: tuple[str, ...] = ()
    """Features of a CPU that the engine says it was compiled with."""
    frames: dict[To | None, int] = field(default_factory=dict)
    """Where backtraces show the process to have been, and the last line that did."""
    phase: Phase | None = None
    role: Role = Role.MAIN
    fit: str | None = None
    """``announced`` until a line of a load, or ``probing`` where the log shows the dry runs."""
    dry: bool = False
    contexts: int = 0
    reserving: bool = False
    ready: bool = False
    served: bool = False
    exited: bool = False
    stamp: int | None = None
    verbosity: tuple[int, Line] | None = None
    saved: int = 0
    checkpoints: int = 0
    """Bytes of the prompt cache and of one slot's checkpoints at their largest."""
    ready_line: int = -FAR
    saving_line: int = -FAR
    pinned_line: int = -FAR
    worker: bool = False
    capped: bool = False
    told: bool = False
    """Whether any line was understood."""

    @property
    def probing(self) -> bool:
        """Whether lines are those of a dry run."""
        return self.dry or self.fit is not None

    @property
    def over(self) -> bool:
        """Whether this start, or the process, has ended."""
        return self.end is not None or bool(self.deaths) or self.exited

    def kept(self) -> Start:
        """As it is now, whatever is heard later."""
        as_now = copy(self)
        for name in _GATHERED:
            setattr(as_now, name, copy(getattr(self, name)))
        return as_now

    # --- causes ---------------------------------------------------------------------------------

    def recent(self, line: Line, within: int = NEAR) -> Cause | None:
        """The last cause, if ``line`` may be about it."""
        if not self.causes or line.number - self.causes[-1].last > within:
            return None
        last = self.causes[-1]
        over = last.probe and not last.usual and not self.probing
        return None if over else last  # what comes after a dry run is not about it

    def add(self, event: Event, line: Line, kind: Kind) -> Cause:
        """A new cause, of which ``line`` is the first to tell."""
        rule = event.rule
        phase = self.phase if self.phase in RUNTIME else rule.phase or self.phase
        if kind is Kind.ALLOCATION and phase in RUNTIME:
            kind = Kind.RUNTIME_ALLOCATION
        if rule.loading is not None and phase in (Phase.FIT, Phase.LOAD, Phase.CONTEXT):
            kind = rule.loading
        cause = Cause(
            kind,
            rule,
            line.number,
            line.text,
            line.number,
            component=rule.component,
            family=rule.family,
            phase=phase,
            role=self.role,
            fatal=rule.fatal,
            presumed=rule.presumed,
            inferred=rule.inferred,
            probe=self.probing or rule.probed,
            usual=rule.probed and not self.probing,
            normal=rule.probed,
        )
        if len(self.causes) >= KEEP:
            # the first ones decide, and the last one is what a death would follow from
            self.capped = True
            self.causes.pop()
        self.causes.append(cause)
        self.place(cause)
        return cause

    def place(self, cause: Cause) -> None:
        """Take what backtraces tell of ``cause``: they may be printed before its own words."""
        for where, number in self.frames.items():
            if cause.line - number <= GROUP:
                cause.place(where)

    def note(self, name: str | None, line: Line) -> None:
        """Keep that ``line`` gave this notice."""
        if name is None or f"{name} {line.text}" in self.noticed:
            return
        if len(self.notices) >= KEEP:
            self.capped = True
            return
        self.noticed.add(f"{name} {line.text}")
        self.notices.append(Notice(id=name, line=line.number, text=line.text))

    # --- how far it got -------------------------------------------------------------------------

    def progress(self, line: Line) -> None:
        """Something worked: it outlived what failed before."""
        for cause in self.causes:
            # a file that could not be fetched is not missed before it is to be loaded
            early = cause.phase is Phase.ARGUMENTS and not (self.seen or self.ready)
            if line.number > cause.last and not early:
                cause.went_on = True

    def serve(self) -> None:
        """It serves: what it loads from here on is the main model's."""
        self.phase, self.served = Phase.SERVING, True
        self.fit, self.dry = None, False
        if self.role is Role.DRAFT:
            self.role = Role.MAIN

    def outlive(self, line: Line) -> None:
        """A request came to its end: the process did not die of what was said before.

        A line or two may be printed late, so a death just before is not taken back; nor is one
        before the server said again that it is ready, as that was another process.
        """
        self.deaths = [
            death
            for death in self.deaths
            if line.number - death.last <= LATE or self.ready_line > death.line
        ]
        for cause in self.causes:
            if cause.fatal and line.number - cause.last > LATE and self.ready_line < cause.line:
                cause.fatal, cause.inferred, cause.went_on = False, True, True

    def sleep(self) -> None:
        """The model leaves memory, or comes back: what is loaded next is loaded anew."""
        for gathered in (self.buffers, self.seen, self.whole, self.totals):
            gathered.clear()
        self.role, self.phase, self.contexts = Role.MAIN, Phase.LOAD, 0
        self.reserving = False

    def load(self) -> None:
        """A dry run prints what it loads only after it has said what it measures."""
        if self.fit == "announced":
            self.fit = None

    def probed(self) -> None:
        """What failed so far, once the options were read, did so in a dry run."""
        self.end = None
        for cause in self.causes:
            if cause.phase is not Phase.ARGUMENTS:
                cause.probe, cause.usual = True, False


_GATHERED: Final = tuple(
    one.name for one in fields(Start) if one.default_factory in (list, set, dict)
)
