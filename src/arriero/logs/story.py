"""What the lines of one process say, gathered start by start.

A process may start several times in one log (a restart loop). Within one start, allocator messages,
the line that says whose buffer it was, and what the server says when it gives up belong together:
they make one cause. ``verdict`` picks the failure among the causes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass, field, fields, replace
from typing import Final

from arriero.base.words import Component, Kind, Phase, Role
from arriero.logs.grammar import ERAS, MEMORY_WORDS, Act, By, Event, Of, Rule, To, events
from arriero.logs.lines import MAX_LINE, Line, relayed
from arriero.logs.model import Buffer, EngineTag, Notice
from arriero.logs.quoted import LOG, Listener, Manner, own_words

MIB = 1024 * 1024
KEEP = 256
"""Causes, buffers, notices kept of each start; a notice says when there were more."""
NEAR, GROUP, FAR = 12, 40, 200
"""Lines within which allocator messages belong together; within which their owner follows; within
which a death is a consequence."""

RUNTIME: Final = (Phase.WARMUP, Phase.SERVING)
LATE: Final = 2
"""Lines that the logger may print after those of a death."""
SET_BACK: Final = 50_000
"""Microseconds by which a line's clock is behind the last one's only if a process began."""
MILD: Final = (Kind.REPROCESSING, Kind.STATE_GROWTH, Kind.CACHE_FULL)
MEMORY: Final = (Kind.ALLOCATION, Kind.BUFFER_LIMIT, Kind.RUNTIME_ALLOCATION)

_WHERE = re.compile(r"current device: (?P<index>-?\d{1,9}), in function (?P<function>\w+)")
_POOL_FUNCTIONS = re.compile(r"^(?:alloc|cublas_handle|ggml_cuda_pool\w*)$")
_OF_TASK: Final = re.compile(
    r"slot\s{1,12}(launch_slot_|release): id\s{1,4}\d{1,9} \| task (\d{1,9}) \| (?:proces|stop)"
)
_OF_FAILURES: Final = frozenset(
    (
        *(Act.REQUEST, Act.BUFFER, Act.OWNER, Act.FAILURE, Act.DETAIL, Act.FRAME),
        *(Act.DEATH, Act.END, Act.OF_DRAFT),
    )
)
_OF_STARTS: Final = frozenset(
    (Act.SIZE, Act.TOTAL, Act.VALUE, Act.FIT_BEGIN, Act.FIT_END, Act.ROLE, Act.DEVICE, Act.BEGIN)
)
_EARLY: Final = (Phase.ARGUMENTS, Phase.FIT, Phase.LOAD, Phase.CONTEXT, Phase.WARMUP)
_OURS: Final = re.compile(r"(?i)llama|ggml|rpc|server|main|kobold|python|studio|jan\b|local-?ai")
_NO_FEATURES: Final = frozenset(("LLAMAFILE", "ACCELERATE", "OPENMP", "KLEIDIAI", "REPACK", "BLAS"))
"""What ``system_info`` tells beside features of the CPU."""
_OF_WEIGHTS: Final = re.compile(
    r"(?:AMX|CPU_(?:REPACK|AARCH64|KLEIDIAI|HBM|RISCV64_SPACEMIT)|\w{1,40}_(?:Split|Mapped))\b"
)
"""Types of buffers that hold weights and nothing else."""
_ROLES: Final = {To.DRAFT: Role.DRAFT, To.MMPROJ: Role.MMPROJ, To.MAIN: Role.MAIN}
_READY: Final = (To.READY, To.IDLE)


def _is_ours(process: str | None) -> bool:
    """Whether a process that the kernel names can be the server; so can one without a name."""
    return process is None or process.startswith("<unknown") or bool(_OURS.search(process))


def features_in(text: str) -> tuple[str, ...]:
    """Features of the CPU that a ``system_info`` line says the engine was compiled with."""
    _, named, of_cpu = text.partition("CPU : ")  # other backends' come before, where any are named
    told = (of_cpu if named else text.partition(" | ")[2]).split(" | ")
    pairs = (item.strip(" |").partition(" = ") for item in told)
    return tuple(name for name, _, value in pairs if value == "1" and name not in _NO_FEATURES)


def bytes_of(mib: str) -> int:
    """Bytes of a figure printed in MiB, with a decimal point or a decimal comma."""
    whole, _, fraction = mib.rstrip(".,").replace(" ", "").replace(",", ".").rpartition(".")
    return round(float(f"{whole.replace('.', '')}.{fraction}" if whole else fraction) * MIB)


@dataclass
class Cause:
    """One failure in the making. ``line`` and ``text`` are of the line that names it best."""

    kind: Kind
    rule: Rule
    """Of the line that first told of it, or of one that told more."""
    line: int
    text: str
    last: int
    """Number of the last line that added to it."""
    component: Component | None = None
    family: str | None = None
    index: int | None = None
    device: str | None = None
    size: int | None = None
    exact: bool = False
    """Whether ``size`` was printed in bytes."""
    whole: int | None = None
    phase: Phase | None = None
    role: Role = Role.MAIN
    fatal: bool | None = None
    presumed: bool | None = None
    inferred: bool = False
    probe: bool = False
    """Whether it is in a dry run of the fit."""
    usual: bool = False
    """Whether it is in a dry run for all that is known: most are."""
    normal: bool = False
    """Whether every dry run of this kind is refused so."""
    owned: bool = False
    """Whether a line said whose it was, even if in words that are none of the components."""
    of_tensors: bool = False
    """Whether it is a buffer of tensors that are kept: weights or a cache, nothing computed."""
    retried: bool = False
    went_on: bool = False
    """Whether a later line comes only when the start, or the process, went on."""

    @property
    def unowned(self) -> bool:
        """Whether it is not yet known whose request was refused."""
        return self.kind in MEMORY and self.component is None

    def about(self, size: int | None) -> bool:
        """Whether a message about ``size`` bytes can be about the same request."""
        if size is None or self.size is None:
            return True
        return abs(size - self.size) <= max(MIB // 64, self.size // 1000)

    def add_size(self, size: int | None, exact: bool) -> None:
        """Take ``size`` if there is none yet, or if it is more exact."""
        if size is not None and (self.size is None or (exact and not self.exact)):
            self.size, self.exact = size, exact

    def more(self, line: Line) -> None:
        """Take ``line`` as a further one of this failure: what came between was printed late."""
        self.last, self.went_on = line.number, False

    def name(self, line: Line) -> None:
        """Let ``line`` be the one that is shown."""
        self.line, self.text = line.number, line.text


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


_GATHERED: Final = tuple(
    one.name for one in fields(Start) if one.default_factory in (list, set, dict)
)
OPEN: Final = 8
"""Starts of one process for which is kept what was known before a text was repeated."""


@dataclass
class Open:
    """What was known when a line began to repeat a text."""

    start: Start
    before: Start
    """As ``start`` was then."""
    serving: bool
    """Whether the process had served before: it repeated a request's text, else its file's."""
    line: int
    stamp: int | None
    ended: list[Start]
    starts: int
    engine: EngineTag
    restarts: Notice | None
    begun: set[int] = field(default_factory=set)
    """Tasks that were begun since and have not ended."""
    anew: bool = False
    """Whether a start was told of since: no process tells of one that serves, or loads a file."""
    starting: bool = False
    """Whether the last start that was told of since has not come to an end."""

    def is_after(self, line: Line) -> bool:
        """Whether the clock of ``line`` is behind: another process says it, or none."""
        return self.stamp is not None and (line.stamp is None or line.stamp < self.stamp - SET_BACK)


class Story:
    """The state of one process while its lines come in."""

    def __init__(self, child: str | None) -> None:
        self.child = child
        self.start = Start()
        self.ended: list[Start] = []
        """The last start before this one that has something to say."""
        self.starts = 1
        self.last = Line(0, "")
        self.devices: set[str] = set()
        self.eras: set[tuple[int, int]] = set()
        self.stamped = False
        self.engine = EngineTag()
        self._listener: Listener[tuple[Line, Sequence[Event]]] = Listener(MAX_LINE)
        self._open: list[Open] = []
        """For each start in which a text was repeated lately, what was known before."""
        self.restarts: Notice | None = None
        """That a supervisor starts the process again and again, and how often."""
        self._take: dict[Act, Callable[[Event, Line], None]] = {
            Act.REQUEST: self._request,
            Act.BUFFER: self._buffer,
            Act.OWNER: self._owner,
            Act.FAILURE: self._failure,
            Act.DETAIL: self._detail,
            Act.FRAME: self._frame,
            Act.DEATH: self._death,
            Act.END: self._end,
            Act.OF_DRAFT: self._of_draft,
            Act.RETRY: self._retry,
            Act.SIZE: self._size,
            Act.TOTAL: self._total,
            Act.VALUE: self._value,
            Act.MILESTONE: self._milestone,
            Act.FIT_BEGIN: self._fit_begin,
            Act.FIT_END: self._fit_end,
            Act.ROLE: self._role,
            Act.STATE: self._state,
            Act.NOTICE: self._notice,
            Act.DEVICE: self._device,
            Act.BEGIN: self._begin,
        }

    def feed(self, line: Line, found: Sequence[Event]) -> None:
        """Take the next line of this process and the events of it."""
        self.last = line
        if self._open and (of_task := _OF_TASK.match(line.text)):
            self._count(line, of_task[1] == "release", int(of_task[2]))
        rules = [event.rule for event in found]
        begins = any(r.act is Act.BEGIN or r.to is To.LOAD for r in rules)
        ready = any(r.to is To.READY for r in rules)
        if self._open and rules:
            self._see(line, rules, begins, ready)
        manner = Manner(
            stamp=line.stamp,
            grave=any(map(_is_grave, rules)),
            anew=begins or self._set_back(line),
            early=any(map(_is_early, rules)),
            ready=ready,
            serving=self.start.ready or self.start.served,
            told=bool(found) or self._set_back(line),
        )
        told = self._listener.hear(line.text, (line, found), manner)
        for (own, events_of), sure in told:
            if sure:
                self._hear(own, events_of)
            else:
                self._suspect(own, events_of)
        if self._listener.opened:
            self._hold(line, manner.serving)

    @property
    def listening(self) -> bool:
        """Whether the next line may be text that the last one began to repeat, or withdraw it."""
        return self._listener.opened or (bool(self._open) and self._open[0].anew)

    # --- what is withdrawn ----------------------------------------------------------------------

    def _see(self, line: Line, rules: Sequence[Rule], begins: bool, ready: bool) -> None:
        """Take a line that may tell of a start: who is ready though none began went on.

        A model's file may hold a log, too: of a start that begins and fails, or serves and dies.
        """
        ends = any(
            r.act in (Act.DEATH, Act.END)
            or r.to is To.EXIT
            or (r.act is Act.FAILURE and r.fatal and r.kind is not None)
            for r in rules
        )
        for at, held in enumerate(self._open):
            held.anew = held.anew or begins or (ready and held.serving)
            held.starting = begins or (held.starting and not ends)
            if ready and held.anew and not (held.starting or held.serving or held.is_after(line)):
                self._withdraw(at)
                return

    def _hold(self, line: Line, serving: bool) -> None:
        """Remember what is known where a line begins to repeat a text."""
        self._open = [held for held in self._open if line.number - held.line <= LOG]
        if self._open and self._open[-1].start is self.start:
            if self._open[-1].anew:
                return
            self._open.pop()
        if len(self._open) < OPEN:
            self._open.append(
                Open(
                    start=self.start,
                    before=self.start.kept(),
                    serving=serving,
                    line=line.number,
                    stamp=line.stamp if self._listener.stamped else None,
                    ended=self.ended,
                    starts=self.starts,
                    engine=self.engine,
                    restarts=self.restarts,
                )
            )

    def _count(self, line: Line, ends: bool, task: int) -> None:
        """Take a line about a task: who ends one that was not begun since is the same process.

        What a request held may tell of tasks too: of each that ends, it tells first that it begins.
        So does a process that began since, and its clock is behind.
        """
        self._open = [held for held in self._open if line.number - held.line <= LOG]
        for at, held in enumerate(self._open):
            if held.is_after(line):
                continue
            if not ends:
                held.begun.add(task)
            elif task in held.begun:
                held.begun.remove(task)
            elif held.anew:
                self._withdraw(at)
                return

    def _withdraw(self, at: int) -> None:
        """Forget what was told since: it told of a start, and the process goes on."""
        held = self._open[at]
        del self._open[at + 1 :]
        self._listener.close()
        held.anew = held.starting = False
        held.begun.clear()
        self.start = held.start = held.before
        held.before = self.start.kept()
        self.ended, self.starts = held.ended, held.starts
        self.engine, self.restarts = held.engine, held.restarts

    def settled(self, *, sure: bool = False) -> Story:
        """This story if the log ends here: what may have been said by others is then a guess.

        ``sure``: something else shows that the process died.
        """
        rest = list(self._listener.rest())
        if not rest:
            return self
        story = deepcopy(self)
        for (line, found), known in rest:
            if known or sure:
                story._hear(line, found)
            else:
                story._suspect(line, found)
        return story

    def _set_back(self, line: Line) -> bool:
        before = self.start.stamp
        return before is not None and line.stamp is not None and line.stamp < before - SET_BACK

    def _suspect(self, line: Line, found: Sequence[Event]) -> None:
        """Take a line that a client may have written, though nothing after it says so."""
        start = self.start
        known = {id(cause) for cause in (*start.causes, *start.deaths, start.end)}
        self._hear(line, [event for event in found if event.rule.act in _OF_FAILURES])
        for cause in (*start.causes[-1:], *start.deaths[-1:], start.end):
            if cause is not None and id(cause) not in known:
                cause.inferred = True

    def _hear(self, line: Line, found: Sequence[Event]) -> None:
        if line.stamp is not None:
            self._clock(line.stamp)
        words, _, end = own_words(line.text)
        for era, first, final in ERAS:
            if era in words:
                self.eras.add((first, final))
        parts = relayed(words[:end])
        if len(parts) > 1:
            for part in parts:
                self._tell(replace(line, text=part), events(part))
        else:
            self._tell(line, found)

    def _tell(self, line: Line, found: Sequence[Event]) -> None:
        for event in found:
            self.start.told = True
            self._take[event.rule.act](event, line)

    @property
    def uses_rpc(self) -> bool:
        """Whether the log shows that workers, or a worker's own lines, are part of it."""
        return self.start.worker or any(name.startswith("RPC") for name in self.devices)

    # --- starts ---------------------------------------------------------------------------------

    def _clock(self, stamp: int) -> None:
        before = self.start.stamp
        # threads log a little out of order: a new process is told by a large step back
        step = SET_BACK if self.start.over else 1_000_000
        if before is not None and stamp < before - step:
            self._next_start()
        self.stamped = True
        self.start.stamp = stamp

    def _next_start(self) -> None:
        if self.start.causes or self.start.over:
            self.ended = [self.start]
        self.starts += 1
        self.start = Start()

    # --- causes ---------------------------------------------------------------------------------

    def _recent(self, line: Line, within: int = NEAR) -> Cause | None:
        causes = self.start.causes
        if not causes or line.number - causes[-1].last > within:
            return None
        last = causes[-1]
        over = last.probe and not last.usual and not self.start.probing
        return None if over else last  # what comes after a dry run is not about it

    def _new(self, event: Event, line: Line, kind: Kind) -> Cause:
        start, rule = self.start, event.rule
        phase = start.phase if start.phase in RUNTIME else rule.phase or start.phase
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
            role=start.role,
            fatal=rule.fatal,
            presumed=rule.presumed,
            inferred=rule.inferred,
            probe=start.probing or rule.probed,
            usual=rule.probed and not start.probing,
            normal=rule.probed,
        )
        if len(start.causes) >= KEEP:
            # the first ones decide, and the last one is what a death would follow from
            start.capped = True
            start.causes.pop()
        start.causes.append(cause)
        self._place_by_frames(cause)
        return cause

    def _request(self, event: Event, line: Line) -> None:
        facts = event.facts
        if event.rule.of_pinned and line.number - self.start.pinned_line <= NEAR // 2:
            self.start.pinned_line = -FAR
            return  # why pinned memory was refused
        size, exact = _size_in(facts)
        cause = self._recent(line)
        if cause is None or not self._can_take_request(cause, event, line, size):
            cause = self._new(event, line, Kind.ALLOCATION)
        elif cause.component is Component.GRAPH:
            cause.inferred = False
        cause.more(line)
        cause.fatal = event.rule.fatal or cause.fatal
        cause.add_size(size, exact)
        cause.family = event.rule.family
        if "index" in facts:
            cause.index = int(facts["index"])
        if facts.get("where") == "host":
            cause.family = "CPU"
        if "buf" in facts:
            self._name_device(cause, facts["buf"])
        if "limit" in facts:
            cause.kind = Kind.BUFFER_LIMIT
        why = facts.get("why", "")
        if why and not MEMORY_WORDS.search(why) and "unknown" not in why:
            cause.kind = Kind.BACKEND

    def _can_take_request(self, cause: Cause, event: Event, line: Line, size: int | None) -> bool:
        if cause.unowned:
            same = size is None and cause.family == event.rule.family
            return cause.about(size) and (same or not cause.went_on)
        # the logger is asynchronous: the cause may be printed after what it led to
        late = cause.kind in MEMORY and cause.size is None and line.number - cause.last <= 4
        host_only = cause.component is Component.GRAPH
        return late and not cause.went_on and (event.rule.family == "CPU" or not host_only)

    def _name_device(self, cause: Cause, buffer: str) -> None:
        cause.device = buffer
        if len(self.devices) < KEEP:
            self.devices.add(buffer)

    def _buffer(self, event: Event, line: Line) -> None:
        size, exact = _size_in(event.facts)
        cause = self._recent(line)
        chunk = cause is not None and _may_be_chunk(cause, event.facts["buf"], size)
        if cause is None or not _can_take_buffer(cause, event, size, chunk=chunk):
            cause = self._new(event, line, Kind.ALLOCATION)
        cause.more(line)
        self._name_device(cause, event.facts["buf"])
        cause.of_tensors = cause.of_tensors or event.rule.of_tensors
        if _OF_WEIGHTS.match(event.facts["buf"]):
            cause.component, cause.phase = Component.WEIGHTS, Phase.LOAD
        if event.rule.component is not None:
            cause.component = event.rule.component
            cause.whole = size
            cause.name(line)
        if chunk and not cause.about(size):
            cause.whole = size
        else:
            cause.add_size(size, exact)
        if cause.phase not in RUNTIME:
            cause.phase = event.rule.phase or cause.phase

    def _owner(self, event: Event, line: Line) -> None:
        rule = event.rule
        if rule.phase is Phase.SERVING:
            self._serving()
        cause = self._recent(line, GROUP)
        if cause is not None and cause.kind is rule.kind is Kind.MODEL:
            cause.last = line.number
            return
        if cause is None or not _can_own(cause, event):
            cause = self._new(event, line, rule.kind or Kind.ALLOCATION)
        else:
            if cause.component is None:
                cause.name(line)
            cause.component = rule.component or cause.component
            if cause.phase not in RUNTIME:
                cause.phase = rule.phase or cause.phase
            cause.fatal = cause.fatal if rule.fatal is None else rule.fatal
        cause.owned = True
        if rule.phase is Phase.SERVING and cause.kind is Kind.ALLOCATION:
            cause.kind, cause.phase = Kind.RUNTIME_ALLOCATION, rule.phase
        cause.more(line)
        cause.add_size(*_size_in(event.facts))
        buffer = event.facts.get("buf", "").strip()
        if cause.device is None and buffer and buffer not in ("backend", "metal"):
            self._name_device(cause, buffer)

    def _failure(self, event: Event, line: Line) -> None:
        rule, start = event.rule, self.start
        kind = rule.kind or Kind.CRASH
        cause = self._recent(line)
        if rule.of is Of.CALL:
            self._gpu_error(event, line, cause)
            return
        if rule.of_kernel and not _is_ours(event.facts.get("who")):
            if cause is not None and cause.rule.of_kernel:
                start.causes.remove(cause)  # the line before did not say whose it was
            return
        if rule.unready and start.phase in RUNTIME:
            return
        if rule.workers is not None and self.uses_rpc:
            kind = rule.workers
        if kind in MILD:
            self._serving()
            if any(c.kind is kind for c in start.causes):
                return
            cause = None
        if cause is not None and self._same(cause, event, kind):
            if cause.kind is Kind.BACKEND and kind is Kind.RUNTIME_ALLOCATION and not rule.inferred:
                cause.kind = kind  # the driver says in a later line that it was memory
            if cause.unowned and rule.component is not None:
                cause.component = rule.component
                cause.name(line)
                if rule.component is Component.POOL and cause.phase is None:
                    cause.kind = kind
            cause.last = line.number
            cause.fatal = rule.fatal or cause.fatal
            cause.presumed = cause.presumed or rule.presumed
        else:
            cause = self._new(event, line, kind)
        cause.add_size(*_size_in(event.facts))

    def _same(self, cause: Cause, event: Event, kind: Kind) -> bool:
        """Whether a further message is about the failure just before it."""
        rule = event.rule
        if cause.probe != (self.start.probing or (rule.probed and cause.usual)) or cause.went_on:
            return False
        if rule.component is Component.GRAPH and kind is Kind.ALLOCATION:
            return cause.unowned and cause.family == "CPU"
        if rule.inferred and kind in (Kind.BACKEND, Kind.RUNTIME_ALLOCATION):
            return cause.kind in (*MEMORY, Kind.BACKEND, Kind.RPC)
        if kind is Kind.RUNTIME_ALLOCATION and (cause.unowned or cause.kind is Kind.BACKEND):
            return True
        if cause.rule.leads is kind:
            return True  # such as a device that is lost for want of memory
        if kind in (Kind.ALLOCATION, Kind.RUNTIME_ALLOCATION):
            return cause.kind in MEMORY and rule.component in (None, cause.component)
        return cause.kind is kind

    def _gpu_error(self, event: Event, line: Line, cause: Cause | None) -> None:
        # file and line come before or after the words, by era and by luck
        why = event.facts.get("why", "")
        if cause is None or cause.rule.of is not Of.CALL:
            cause = self._new(event, line, Kind.BACKEND)
            cause.inferred = not why
        elif why and cause.inferred:
            cause.name(line)
            cause.inferred = False
        cause.last = line.number
        cause.fatal = event.rule.fatal or cause.fatal
        if MEMORY_WORDS.search(why):
            cause.kind = Kind.RUNTIME_ALLOCATION
        if (where := _WHERE.search(why)) is not None:
            self._gpu_place(cause, where["index"], where["function"])

    def _detail(self, event: Event, line: Line) -> None:
        rule, facts = event.rule, event.facts
        recent = self._recent(line)
        if recent is None:
            if rule.kind is not None:
                cause = self._new(event, line, rule.kind)
                cause.phase = cause.phase or Phase.WARMUP
            elif "asks" in facts:
                cause = self._new(event, line, Kind.RUNTIME_ALLOCATION)
                cause.family, cause.component = "CUDA", Component.POOL
                cause.fatal = cause.inferred = True
            return
        if rule.of is Of.COMMANDS:
            recent.last, recent.inferred = line.number, False
            recent.kind = rule.kind or recent.kind
        elif rule.of is Of.REQUEST:
            recent.last = line.number
            recent.add_size(*_size_in(facts))
        elif recent.rule.of is Of.CALL:
            recent.last = line.number
            if "index" in facts:
                self._gpu_place(recent, facts["index"], facts["function"])
            elif "asks" in facts and recent.kind is Kind.RUNTIME_ALLOCATION:
                recent.component = Component.POOL

    def _gpu_place(self, cause: Cause, index: str, function: str) -> None:
        cause.index = int(index)
        if cause.kind is Kind.RUNTIME_ALLOCATION and _POOL_FUNCTIONS.search(function):
            cause.component = Component.POOL

    def _frame(self, event: Event, line: Line) -> None:
        """A line of a backtrace: where the process was when it died."""
        self.start.frames[event.rule.to] = line.number
        dead = [d for d in self.start.deaths[-1:] if line.number - d.last <= GROUP]
        for cause in dead + [c for c in self.start.causes[-1:] if line.number - c.last <= GROUP]:
            cause.last = line.number
            _place(cause, event.rule.to)

    def _place_by_frames(self, cause: Cause) -> None:
        """A backtrace may be printed before the words it belongs to."""
        for where, number in self.start.frames.items():
            if cause.line - number <= GROUP:
                _place(cause, where)

    def _death(self, event: Event, line: Line) -> None:
        deaths = self.start.deaths
        if not _is_ours(event.facts.get("who") or event.facts.get("task")):
            return  # the kernel's log is about every process of the machine
        kind = event.rule.kind or Kind.CRASH
        if "(restarting)" in line.text:
            self._restarted(event, line)
        if deaths and line.number - deaths[-1].last <= FAR and _same_death(deaths[-1], event, line):
            return
        if len(deaths) >= KEEP:
            self.start.capped = True
            return
        saving = line.number - self.start.saving_line <= NEAR and kind is Kind.CRASH
        death = Cause(
            kind,
            event.rule,
            line.number,
            line.text,
            line.number,
            component=Component.PROMPT_CACHE if saving else event.rule.component,
            phase=Phase.FIT if self.start.probing else event.rule.phase or self.start.phase,
            fatal=True,
            inferred=event.rule.inferred,
        )
        self._place_by_frames(death)
        deaths.append(death)

    def _end(self, event: Event, line: Line) -> None:
        last = self._recent(line, GROUP)
        if event.rule.to is To.REAL:
            self.start.fit, self.start.dry = None, False
            if last is not None and last.usual and not last.went_on:
                last.probe = False
        if last is not None and last.kind in MEMORY and last.phase not in RUNTIME:
            last.went_on = False  # the logger is asynchronous: what came before is printed late
        if self.start.end is None:
            self.start.end = Cause(
                event.rule.kind or Kind.CRASH,
                event.rule,
                line.number,
                line.text,
                line.number,
                phase=event.rule.phase,
                inferred=True,
            )

    def _of_draft(self, event: Event, line: Line) -> None:
        cause = self._recent(line, GROUP)
        if cause is not None and cause.probe and not cause.usual and not self.start.probing:
            cause = None
        if cause is not None and cause.kind in MEMORY:
            cause.role = Role.DRAFT
        elif cause is None:
            self._end(event, line)
            if self.start.end is not None:
                self.start.end.role = Role.DRAFT

    def _retry(self, event: Event, line: Line) -> None:
        if event.rule.to is To.AT_ONCE and not self._just_failed(line):
            return  # the first try, or one that somebody asked for later
        if event.rule.to is To.WENT_ON and not self.start.causes:
            return  # the first try: nothing failed before it
        for cause in self.start.causes[-1:]:
            if event.rule.to in (To.WENT_ON, To.AT_ONCE):
                cause.went_on = True
            else:
                cause.retried, cause.last = True, line.number
        self._note(event.rule.notice, line)

    def _just_failed(self, line: Line) -> bool:
        """Whether this start failed in the lines just before."""
        start = self.start
        last = [cause.last for cause in (*start.causes[-1:], *start.deaths[-1:])]
        ended = [start.end.line] if start.end is not None else []
        return line.number - max([*last, *ended], default=-FAR) <= NEAR

    def _state(self, event: Event, line: Line) -> None:
        start, facts = self.start, event.facts
        self._serving()
        self._progress(line)
        size = bytes_of(facts.get("mib", "0"))
        if event.rule.to is To.SAVING:
            start.saving_line = line.number
        if "count" in facts:
            start.checkpoints = max(start.checkpoints, size * int(facts["count"]))
            return
        start.saved = max(start.saved, size)
        if 0 < bytes_of(facts.get("limit", "0")) < size:
            grown = next((c for c in start.causes if c.kind is Kind.STATE_GROWTH), None)
            if grown is None:
                grown = self._new(event, line, Kind.STATE_GROWTH)
                grown.fatal = False
            if grown.size is None or size > grown.size:
                grown.size = size
                grown.name(line)

    # --- how far it got -------------------------------------------------------------------------

    def _progress(self, line: Line) -> None:
        for cause in self.start.causes:
            # a file that could not be fetched is not missed before it is to be loaded
            early = cause.phase is Phase.ARGUMENTS and not (self.start.seen or self.start.ready)
            if line.number > cause.last and not early:
                cause.went_on = True

    def _size(self, event: Event, line: Line) -> None:
        start, component = self.start, event.rule.component or Component.COMPUTE
        size = bytes_of(event.facts["mib"])
        if size == 0:
            return
        self._beyond_fit()
        device = event.facts.get("buf", "CPU")
        if start.probing:
            self._measured(component, device, size)
            return  # a dry run's buffers are not real
        self.devices.add(device)
        start.seen.add(component)
        self._progress(line)
        if start.phase is Phase.LOAD and component in (
            Component.OUTPUT,
            Component.KV,
            Component.RS,
        ):
            start.phase = Phase.CONTEXT
        projector = component is Component.MMPROJ or "compute_meta" in event.facts.get(
            "function", ""
        )
        role = Role.MMPROJ if projector else start.role
        if component is Component.COMPUTE:
            # a context may reserve again: its last figure holds
            same = (component, device, role)
            start.buffers = [b for b in start.buffers if (b.component, b.device, b.role) != same]
        if len(start.buffers) >= KEEP:
            start.capped = True
            return
        start.buffers.append(
            Buffer(component=component, device=device, bytes=size, line=line.number, role=role)
        )

    def _total(self, event: Event, line: Line) -> None:
        start, component = self.start, event.rule.component or Component.COMPUTE
        size = bytes_of(event.facts["mib"])
        self._beyond_fit()
        if start.role is Role.MAIN:
            several = start.totals.get(component, 0) if component is Component.KV else 0
            start.totals[component] = several + size
        if int(event.facts.get("planes", 0)):
            self._note("rs_planes", line)
        if start.probing:
            self._measured(component, None, size)
            return
        start.seen.add(component)
        start.whole.add(component)
        self._progress(line)

    def _measured(self, component: Component, device: str | None, size: int) -> None:
        start = self.start
        if start.role is Role.MAIN and len(start.measured) < KEEP:
            start.measured.append((component, device, size))

    def _value(self, event: Event, line: Line) -> None:
        start = self.start
        if "recurrent" in event.facts:
            start.recurrent = start.recurrent or int(event.facts["recurrent"]) > 0
            return
        if start.probing:
            return
        if event.rule.to is To.SLOTS:
            start.role = Role.MAIN
            self._progress(line)
        elif start.phase in (None, Phase.LOAD) and event.rule.phase is not None:
            start.phase = event.rule.phase
        if start.role is Role.MAIN:
            start.values.update(event.facts)

    def _milestone(self, event: Event, line: Line) -> None:
        rule = event.rule
        if rule.to is To.LOAD and self.start.over:
            self._next_start()
        start = self.start
        if rule.to is To.EXIT:
            start.exited, start.phase = True, Phase.SHUTDOWN
            return
        if rule.to is To.SLEEP:
            self.start.buffers.clear()
            start.seen.clear()
            start.whole.clear()
            start.totals.clear()
            start.role, start.phase, start.contexts = Role.MAIN, Phase.LOAD, 0
            start.reserving = False
            return
        if rule.to is To.LOAD:
            start.introduced = True
        if rule.phase in (Phase.LOAD, Phase.CONTEXT):
            self._beyond_fit()
        if rule.to in (To.DRY, To.REAL):
            start.dry, start.contexts = rule.to is To.DRY, 0
        if start.probing and rule.phase in (Phase.LOAD, Phase.CONTEXT):
            return
        if rule.to is To.TENSORS:
            start.reading = True
        if rule.to is To.CONTEXT:
            start.contexts += 1
            if start.contexts > 1 and start.role is Role.MAIN:
                start.role = Role.DRAFT
        if rule.to is To.RESERVE:
            start.reserving = True
        if rule.phase is Phase.SERVING:
            self._serving()
            if rule.to in (To.IDLE, To.RELEASED):
                self._outlived(line)
            elif rule.to is To.READY and line.stamp is None:  # where a clock would tell of a start
                start.ready_line = line.number
            if rule.to in _READY:
                start.ready, start.end = True, None
            start.role = Role.MMPROJ if rule.to is To.IMAGE else start.role
        elif start.phase is not Phase.SERVING:
            start.phase = rule.phase
            if rule.phase is Phase.LOAD and start.role is Role.MMPROJ:
                start.role = Role.MAIN
        self._progress(line)

    def _outlived(self, line: Line) -> None:
        """A request came to its end: the process did not die of what was said before.

        A line or two may be printed late, so a death just before is not taken back; nor is one
        before the server said again that it is ready, as that was another process.
        """
        start = self.start
        start.deaths = [
            death
            for death in start.deaths
            if line.number - death.last <= LATE or start.ready_line > death.line
        ]
        for cause in start.causes:
            if cause.fatal and line.number - cause.last > LATE and start.ready_line < cause.line:
                cause.fatal, cause.inferred, cause.went_on = False, True, True

    def _serving(self) -> None:
        start = self.start
        start.phase, start.served = Phase.SERVING, True
        start.fit, start.dry = None, False
        if start.role is Role.DRAFT:
            start.role = Role.MAIN

    def _fit_begin(self, event: Event, line: Line) -> None:
        probing = event.rule.to is To.PROBING
        self.start.fit = "probing" if probing else self.start.fit or "announced"
        self.start.role = Role.MAIN  # the projector and the draft are measured before

    def _beyond_fit(self) -> None:
        """A dry run prints what it loads only after it has said what it measures."""
        if self.start.fit == "announced":
            self.start.fit = None

    def _fit_end(self, event: Event, line: Line) -> None:
        start = self.start
        if event.rule.to is To.PROBED:
            # the default verbosity hides where the probe began
            self._probed()
        self._note(event.rule.notice, line)
        start.fit = start.end = None
        if start.phase not in RUNTIME:
            start.phase = Phase.LOAD

    def _probed(self) -> None:
        """What failed so far, once the options were read, did so in a dry run."""
        self.start.end = None
        for cause in self.start.causes:
            if cause.phase is not Phase.ARGUMENTS:
                cause.probe, cause.usual = True, False

    def _role(self, event: Event, line: Line) -> None:
        self.start.role = _ROLES[event.rule.to or To.MAIN]

    def _notice(self, event: Event, line: Line) -> None:
        if event.rule.to is To.WORKER:
            self.start.worker = True
            self._progress(line)
            return
        if event.rule.to is To.RESTART:
            self._restarted(event, line)
            return
        if event.rule.to is To.PROBED:
            self._probed()
        if event.rule.notice == "pinned_memory_refused" and "ErrorOutOf" not in line.text:
            self.start.pinned_line = line.number  # the next line may say why
        if event.rule.notice != "near_limit":  # said of a refused buffer too
            self._progress(line)
        self._note(event.rule.notice, line)

    def _restarted(self, event: Event, line: Line) -> None:
        """Keep what tells of the most restarts, and how many it says."""
        times = int(event.facts.get("times", 0)) or None
        before = self.restarts
        if before is None or (times or 0) >= (before.count or 0):
            self.restarts = Notice(id="restart_loop", line=line.number, text=line.text, count=times)

    def _note(self, name: str | None, line: Line) -> None:
        start = self.start
        if name is None or f"{name} {line.text}" in start.noticed:
            return
        if len(start.notices) >= KEEP:
            start.capped = True
            return
        start.noticed.add(f"{name} {line.text}")
        start.notices.append(Notice(id=name, line=line.number, text=line.text))

    def _device(self, event: Event, line: Line) -> None:
        if len(self.devices) < KEEP:
            self.devices.add(event.facts["device"])

    def _begin(self, event: Event, line: Line) -> None:
        facts = event.facts
        if event.rule in self.start.said or self.start.over:
            self._next_start()
        self.start.said.add(event.rule)
        self._progress(line)
        if event.rule.to is To.FEATURES:
            self.start.introduced = True
            self.start.features = features_in(line.text)
        if "verbosity" in facts:
            self.start.verbosity = (int(facts["verbosity"]), line)
        if "build" in facts:
            build = int(facts["build"])
            self.engine = EngineTag(
                # built outside of a git checkout, it calls itself 0 or 1
                build=build if build > 1 else None,
                commit=facts["commit"],
                version=facts.get("version"),
            )


def _is_grave(rule: Rule) -> bool:
    """Whether its message tells of a failure that no request brings about by its text."""
    if rule.act is Act.FAILURE:
        return rule.kind in (*MEMORY, Kind.BACKEND, Kind.RPC, Kind.CRASH, Kind.KILLED)
    return rule.act in (Act.REQUEST, Act.BUFFER, Act.DEATH, Act.END)


def _is_early(rule: Rule) -> bool:
    """Whether a process that serves never says it: a start does, or its end."""
    if rule.act in (Act.FAILURE, Act.OWNER, Act.MILESTONE):
        return rule.phase in _EARLY or rule.to in (To.LOAD, To.EXIT)
    return rule.act in _OF_STARTS


def _size_in(facts: dict[str, str]) -> tuple[int | None, bool]:
    """The size a message names, and whether it was printed in bytes."""
    if "bytes" in facts:
        return int(facts["bytes"].replace(" ", "")), True
    if "mib" in facts:
        return bytes_of(facts["mib"]), False
    return None, False


def _same_death(death: Cause, event: Event, line: Line) -> bool:
    """Whether a further line tells of the same death; what says more of it is taken."""
    kind = event.rule.kind or Kind.CRASH
    classed = (Kind.ENVIRONMENT, Kind.MODEL, Kind.BACKEND)
    if kind in classed and death.kind is Kind.CRASH:
        frame = death.rule.by is By.BACKTRACE and kind is not Kind.ENVIRONMENT
        if frame or not death.rule.aborts:
            death.kind, death.rule = kind, event.rule
            death.component = event.rule.component or death.component
            death.name(line)
    elif kind is not death.kind and not (
        kind is Kind.CRASH and (death.inferred or death.kind in classed)
    ):
        return False
    death.last = line.number
    return True


def _place(cause: Cause, where: To | None) -> None:
    """Take from a line of a backtrace what it tells about ``cause``."""
    if where is To.FIT:
        cause.phase = Phase.FIT
    elif where is To.REMOTE:
        cause.kind = Kind.RPC if cause.kind is Kind.CRASH else cause.kind
    elif cause.kind is Kind.CRASH or (cause.unowned and cause.kind is Kind.RUNTIME_ALLOCATION):
        cause.component, cause.phase = Component.PROMPT_CACHE, Phase.SERVING


def _may_be_chunk(cause: Cause, buffer: str, whole: int | None) -> bool:
    """Whether the request of ``cause`` can be one piece of a buffer that is cut.

    Vulkan's host buffers are ordinary memory where pinned memory is refused, and cut all the same.
    """
    cut = cause.family in ("Vulkan", "Metal") or buffer.startswith("Vulkan")
    return cut and cause.size is not None and (whole is None or whole >= cause.size)


def _can_take_buffer(cause: Cause, event: Event, size: int | None, *, chunk: bool) -> bool:
    """Whether the buffer that ggml names is the one that ``cause`` is about."""
    if cause.unowned:
        return cause.about(size) or chunk
    same = cause.component is event.rule.component and cause.kind in MEMORY
    return same and cause.device is None and cause.about(size)


def _can_own(cause: Cause, event: Event) -> bool:
    """Whether ``event`` says whose request the one of ``cause`` was."""
    rule = event.rule
    if cause.kind not in MEMORY or cause.retried:
        return False
    if cause.component in (None, rule.component) or rule.component is None:
        return True
    # the projector's own graph is allocated like any other
    return rule.component is Component.MMPROJ and cause.component is Component.COMPUTE
