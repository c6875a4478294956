"""How the lines of one process combine into a verdict.

A process may start several times in one log (a restart loop). Within one start, allocator messages,
the line that says whose buffer it was, and what the server says when it gives up belong together;
the first such group of the start that ended is the failure, the rest are consequences.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from arriero.base.words import Component, Evidence, Kind, LogOutcome, Phase, Role
from arriero.logs.grammar import ERAS, NEWEST, NOTICES, OLDEST, STAMP_ERA, Act, Event, events
from arriero.logs.lines import Line
from arriero.logs.model import Buffer, Effective, EngineTag, Failure, Notice, Reading

MIB = 1024 * 1024
KEEP = 256
"""Buffers, notices and secondary failures kept of each start; a notice says when there were more."""
NEAR, FAR = 12, 200
"""Lines within which messages belong together; within which a death is a consequence."""

_RUNTIME: Final = (Phase.WARMUP, Phase.SERVING)
_MILD: Final = (Kind.REPROCESSING, Kind.STATE_GROWTH, Kind.CACHE_FULL)
_ALLOCATION: Final = (Kind.ALLOCATION, Kind.BUFFER_LIMIT, Kind.RUNTIME_ALLOCATION)
_MEMORY_WORDS = re.compile(
    r"out of memory|memory allocation|insufficient|resource allocation failed|OutOfMemory", re.I
)
_POOL_CALLS = re.compile(r"^(?:Mem(?:Create|AddressReserve|Map|SetAccess)|Malloc\w*)$")
_POOL_FUNCTIONS = re.compile(r"^(?:alloc|ggml_cuda_pool_malloc\w*|ggml_cuda_pool\w*)$")
_CHUNKED: Final = ("Vulkan", "Metal", "MTL")
_FAMILIES: Final = {
    "CUDA": ("CUDA", "ROCm", "MUSA", "HIP"),
    "Vulkan": ("Vulkan",),
    "Metal": ("Metal", "MTL"),
    "SYCL": ("SYCL",),
    "CANN": ("CANN",),
    "OpenCL": ("GPUOpenCL", "OpenCL"),
    "HTP": ("HTP",),
}


def number_of_bytes(mib: str) -> int:
    """Bytes of a figure in MiB printed with two or three digits, point or comma."""
    return round(float(mib.rstrip(".,").replace(",", ".")) * MIB)


@dataclass
class Cause:
    """A failure in the making."""

    kind: Kind
    line: int
    text: str
    last: int
    rule: str
    component: Component | None = None
    family: str | None = None
    index: int | None = None
    device: str | None = None
    size: int | None = None
    exact: bool = False
    whole: int | None = None
    phase: Phase | None = None
    role: Role = Role.MAIN
    fatal: bool | None = None
    inferred: bool = False
    probe: bool = False
    """Inside a fit probe."""
    retried: bool = False
    went_on: bool = False

    @property
    def open(self) -> bool:
        """Whether it is not yet known whose request it was."""
        return self.kind in _ALLOCATION and self.component is None

    def takes(self, size: int | None) -> bool:
        """Whether a further message about ``size`` bytes can be about the same request."""
        if size is None or self.size is None:
            return True
        return abs(size - self.size) <= MIB // 64

    def add_size(self, size: int | None, exact: bool) -> None:
        if size is not None and (self.size is None or (exact and not self.exact)):
            self.size, self.exact = size, exact


@dataclass
class Start:
    """One start of the process, as far as the log shows it."""

    causes: list[Cause] = field(default_factory=list)
    deaths: list[Cause] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    values: dict[str, str] = field(default_factory=dict)
    totals: dict[Component, int] = field(default_factory=dict)
    seen: set[Component] = field(default_factory=set)
    begun: set[str] = field(default_factory=set)
    noticed: set[str] = field(default_factory=set)
    phase: Phase | None = None
    role: Role = Role.MAIN
    fit: str | None = None
    contexts: int = 0
    ready: bool = False
    served: bool = False
    exited: bool = False
    end: Cause | None = None
    stamp: int | None = None
    verbosity: tuple[int, Line] | None = None
    saved: int = 0
    checkpoints: int = 0
    saving_line: int = -FAR
    rpc: bool = False
    capped: bool = False
    any: bool = False


class Story:
    """The state of one process while its lines come in. ``feed`` takes them in order."""

    def __init__(self, child: str | None) -> None:
        self.child = child
        self.start = Start()
        self.starts = 1
        self.lines = 0
        self.last = Line(0, "")
        self._earlier: tuple[Start, tuple[Failure, ...]] | None = None
        self._devices: set[str] = set()
        self._eras: list[tuple[int, int]] = []
        self._stamped = False
        self._engine = EngineTag()
        self._act: dict[Act, Callable[[Event, Line], None]] = {
            Act.REQUEST: self._request,
            Act.BUFFER: self._buffer,
            Act.OWNER: self._owner,
            Act.FAILURE: self._failure,
            Act.DETAIL: self._detail,
            Act.DEATH: self._death,
            Act.END: self._end,
            Act.RETRY: self._retry,
            Act.DROPPED_TO_DRAFT: self._draft,
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

    # --- taking lines --------------------------------------------------------------------------------

    def feed(self, line: Line) -> None:
        """Take the next line of this process."""
        self.lines += 1
        self.last = line
        if line.stamp is not None:
            self._clock(line.stamp)
        for words, first, final in ERAS:
            if words in line.text and (first, final) not in self._eras:
                self._eras.append((first, final))
        for event in events(line.text):
            self.start.any = True
            self._act[event.rule.act](event, line)

    def _clock(self, stamp: int) -> None:
        before = self.start.stamp
        over = self.start.end is not None or bool(self.start.deaths) or self.start.exited
        if before is not None and (stamp < before - 1_000_000 or (over and stamp < before - 1000)):
            self._new_start()
        self._stamped = True
        self.start.stamp = stamp

    def _new_start(self) -> None:
        failure, secondary = self._verdict(None)
        if failure is not None:
            self._earlier = (self.start, (failure, *secondary))
        self.starts += 1
        self.start = Start()

    def _over(self) -> bool:
        return self.start.end is not None or bool(self.start.deaths) or self.start.exited

    # --- causes ----------------------------------------------------------------------------------------

    def _recent(self, line: Line, within: int = NEAR) -> Cause | None:
        causes = self.start.causes
        if causes and line.number - causes[-1].last <= within:
            return causes[-1]
        return None

    def _new_cause(self, event: Event, line: Line, kind: Kind) -> Cause:
        start = self.start
        phase = start.phase if start.phase in _RUNTIME else event.rule.phase or start.phase
        if kind is Kind.ALLOCATION and phase in _RUNTIME:
            kind = Kind.RUNTIME_ALLOCATION
        if (
            kind is Kind.RUNTIME_ALLOCATION
            and phase not in (*_RUNTIME, None)
            and event.rule.id == "bad_alloc"
        ):
            kind = Kind.ALLOCATION
        cause = Cause(
            kind,
            line.number,
            line.text,
            line.number,
            event.rule.id,
            component=event.rule.component,
            family=event.rule.family,
            phase=phase,
            role=start.role,
            fatal=event.rule.fatal,
            inferred=event.rule.inferred,
            probe=start.fit == "probing",
        )
        if len(start.causes) >= KEEP:
            # the first ones decide; the last one is what a death would follow from
            start.capped = True
            start.causes.pop()
        start.causes.append(cause)
        return cause

    def _sizes_of(self, event: Event) -> tuple[int | None, bool]:
        if "bytes" in event.facts:
            return int(event.facts["bytes"][:20]), True
        if "mib" in event.facts:
            return number_of_bytes(event.facts["mib"]), False
        return None, False

    def _request(self, event: Event, line: Line) -> None:
        size, exact = self._sizes_of(event)
        limit = "limit" in event.facts
        cause = self._recent(line)
        late = (
            cause is not None
            and cause.kind in _ALLOCATION
            and cause.size is None
            and line.number - cause.last <= 4
            and (cause.component is not Component.GRAPH or event.rule.family == "CPU")
        )
        if cause is None or not (cause.open and cause.takes(size) and not cause.went_on or late):
            cause = self._new_cause(event, line, Kind.ALLOCATION)
        elif cause.component is Component.GRAPH:
            cause.inferred = False
        cause.last = line.number
        cause.add_size(size, exact)
        cause.family = event.rule.family or cause.family
        if "index" in event.facts:
            cause.index = int(event.facts["index"])
        if event.facts.get("where") == "host":
            cause.family = "CPU"
        if "buf" in event.facts:
            self._names(cause, event.facts["buf"])
        if limit:
            cause.kind = Kind.BUFFER_LIMIT
        why = event.facts.get("why")
        if why and not _MEMORY_WORDS.search(why) and "nknown" not in why:
            cause.kind = Kind.BACKEND

    def _names(self, cause: Cause, buffer: str) -> None:
        cause.device = buffer
        self._devices.add(buffer)

    def _buffer(self, event: Event, line: Line) -> None:
        size, exact = self._sizes_of(event)
        cause = self._recent(line)
        chunked = (
            cause is not None and cause.family in ("Vulkan", "Metal") and cause.size is not None
        )
        if cause is None or not cause.open or not (cause.takes(size) or chunked):
            cause = self._new_cause(event, line, Kind.ALLOCATION)
        cause.last = line.number
        if "buf" in event.facts:
            self._names(cause, event.facts["buf"])
        if event.rule.component is not None:
            cause.component = event.rule.component
            cause.whole = size
        if chunked and not cause.takes(size):
            cause.whole = size
        else:
            cause.add_size(size, exact)
        if cause.phase not in _RUNTIME:
            cause.phase = event.rule.phase or cause.phase

    def _owner(self, event: Event, line: Line) -> None:
        rule = event.rule
        size, exact = self._sizes_of(event)
        cause = self._recent(line, 40)
        fits = (
            cause is not None
            and cause.kind in _ALLOCATION
            and not cause.retried
            and (
                cause.component in (None, rule.component)
                or rule.component is None
                or (
                    rule.component is Component.MMPROJ
                    and not rule.fatal
                    and cause.component is Component.COMPUTE
                )
            )
        )
        if cause is None or not fits:
            cause = self._new_cause(event, line, Kind.ALLOCATION)
        else:
            if cause.component is None:
                cause.line, cause.text = line.number, line.text
            cause.component = rule.component or cause.component
            if cause.phase not in _RUNTIME:
                cause.phase = rule.phase or cause.phase
            cause.fatal = rule.fatal if rule.fatal is not None else cause.fatal
        cause.last = line.number
        cause.add_size(size, exact)
        if (
            cause.device is None
            and "buf" in event.facts
            and event.facts["buf"] not in ("backend", "backend CPU", "backend metal")
        ):
            self._names(cause, event.facts["buf"])

    def _failure(self, event: Event, line: Line) -> None:
        rule = event.rule
        assert rule.kind is not None
        kind = rule.kind
        size, exact = self._sizes_of(event)
        cause = self._recent(line)
        if rule.id == "tensor_data" and (
            self.start.rpc or any(d.startswith("RPC") for d in self._devices)
        ):
            kind = Kind.RPC
        if rule.id.startswith("gpu_error"):
            self._gpu_error(event, line, cause)
            return
        if kind in _MILD:
            if any(
                c.rule == rule.id or (c.kind is kind is Kind.CACHE_FULL) for c in self.start.causes
            ):
                return
            self._serving()
            cause = None
        if kind is Kind.KILLED and any(d.kind is Kind.KILLED for d in self.start.deaths):
            return
        if kind is Kind.KILLED:
            death = Cause(
                kind,
                line.number,
                line.text,
                line.number,
                rule.id,
                phase=self.start.phase,
                fatal=True,
            )
            self.start.deaths.append(death)
            return
        if cause is not None and self._same_failure(cause, kind, rule.component):
            if cause.open and rule.component is not None:
                cause.component = rule.component
                cause.line, cause.text = line.number, line.text
            cause.last = line.number
            cause.fatal = True if rule.fatal else cause.fatal
        else:
            cause = self._new_cause(event, line, kind)
            if rule.phase is not None and kind not in _ALLOCATION:
                cause.phase = self.start.phase if self.start.phase in _RUNTIME else rule.phase
        cause.add_size(size, exact)

    def _same_failure(self, cause: Cause, kind: Kind, component: Component | None) -> bool:
        if cause.probe != (self.start.fit == "probing"):
            return False
        if component is Component.GRAPH and cause.open and cause.family == "CPU":
            return True
        if kind is Kind.RUNTIME_ALLOCATION and cause.open:
            return True
        if kind in (Kind.ALLOCATION, Kind.RUNTIME_ALLOCATION):
            return cause.kind in _ALLOCATION and component is None and not cause.went_on
        return cause.kind is kind

    def _gpu_error(self, event: Event, line: Line, cause: Cause | None) -> None:
        why = event.facts.get("why", "")
        if cause is None or not cause.rule.startswith("gpu_error") or line.number - cause.last > 8:
            cause = self._new_cause(event, line, Kind.BACKEND)
            cause.inferred = not why
        elif why and cause.inferred:
            cause.line, cause.text, cause.inferred = line.number, line.text, False
        cause.last = line.number
        if why and _MEMORY_WORDS.search(why):
            cause.kind = Kind.RUNTIME_ALLOCATION
        if cause.phase is None:
            cause.phase = self.start.phase

    def _detail(self, event: Event, line: Line) -> None:
        if event.rule.id == "rpc_frame":
            for death in self.start.deaths[-1:]:
                if line.number - death.last <= 60:
                    death.kind, death.last = Kind.RPC, line.number
            for cause in self.start.causes[-1:]:
                if cause.kind is Kind.CRASH and line.number - cause.last <= 60:
                    cause.kind, cause.last = Kind.RPC, line.number
            return
        recent = self._recent(line)
        if recent is None:
            if event.rule.id == "metal_oom":
                cause = self._new_cause(event, line, Kind.RUNTIME_ALLOCATION)
                cause.family = "Metal"
            return
        recent.last = line.number
        if event.rule.id == "metal_oom":
            recent.kind, recent.inferred = Kind.RUNTIME_ALLOCATION, False
        elif event.rule.id == "metal_cause":
            recent.inferred = False
        elif event.rule.id == "vk_driver_size":
            recent.add_size(int(event.facts["bytes"]), True)
        elif recent.rule.startswith("gpu_error"):
            if "index" in event.facts:
                recent.index = int(event.facts["index"])
            function = event.facts.get("function", "")
            called = event.facts.get("call")
            pool = _POOL_CALLS if called else _POOL_FUNCTIONS
            if recent.kind is Kind.RUNTIME_ALLOCATION and (
                pool.search(function) or event.rule.id == "gpu_call_wrapped"
            ):
                recent.component = Component.POOL

    def _death(self, event: Event, line: Line) -> None:
        deaths = self.start.deaths
        if deaths and line.number - deaths[-1].last <= 100:
            deaths[-1].last = line.number
            return
        death = Cause(
            Kind.CRASH,
            line.number,
            line.text,
            line.number,
            event.rule.id,
            phase=self.start.phase,
            fatal=True,
        )
        if line.number - self.start.saving_line <= 10:
            death.component = Component.PROMPT_CACHE
        if len(deaths) < KEEP:
            deaths.append(death)

    def _end(self, event: Event, line: Line) -> None:
        if event.rule.id in ("end_exit", "end_unable") or "with model" in line.text:
            # only the real start says this, a probe never does
            self.start.fit = None
        if self.start.end is None:
            self.start.end = Cause(
                Kind.ALLOCATION, line.number, line.text, line.number, event.rule.id, inferred=True
            )
        self.start.end.last = line.number

    def _retry(self, event: Event, line: Line) -> None:
        for cause in self.start.causes[-1:]:
            cause.retried = True
            cause.last = line.number
        self._note(event.rule.notice or "", line)

    def _draft(self, event: Event, line: Line) -> None:
        cause = self._recent(line, 60)
        if cause is not None and cause.kind in (*_ALLOCATION, Kind.MODEL):
            cause.role = Role.DRAFT

    def _state(self, event: Event, line: Line) -> None:
        self._serving()
        size = number_of_bytes(event.facts["mib"])
        if event.rule.id == "checkpoint":
            self.start.checkpoints = max(self.start.checkpoints, size * int(event.facts["count"]))
            return
        self.start.saved = max(self.start.saved, size)
        limit = event.facts.get("limit")
        if limit and 0 < number_of_bytes(limit) < size:
            known = next((c for c in self.start.causes if c.kind is Kind.STATE_GROWTH), None)
            if known is None:
                known = self._new_cause(event, line, Kind.STATE_GROWTH)
                known.fatal = False
            if known.size is None or size > known.size:
                known.size, known.line, known.text = size, line.number, line.text

    # --- sizes, values, milestones ----------------------------------------------------------------------

    def _progress(self, line: Line) -> None:
        """Something that comes only when the start (or the process) went on."""
        for cause in self.start.causes:
            if line.number > cause.last:
                cause.went_on = True

    def _size(self, event: Event, line: Line) -> None:
        if self.start.fit == "probing":
            return
        component = event.rule.component
        assert component is not None
        size = number_of_bytes(event.facts["mib"])
        device = event.facts.get("buf", "CPU")
        self._devices.add(device)
        self.start.seen.add(component)
        if size == 0:
            return
        self._progress(line)
        role = (
            Role.MMPROJ
            if event.facts.get("where", "").endswith("compute_meta")
            or component is Component.MMPROJ
            else self.start.role
        )
        buffers = self.start.buffers
        if component is Component.COMPUTE:
            # a context may reserve again: the last figure is the one that holds
            buffers[:] = [
                b for b in buffers if (b.component, b.device, b.role) != (component, device, role)
            ]
        if len(buffers) >= KEEP:
            self.start.capped = True
            return
        buffers.append(
            Buffer(component=component, device=device, bytes=size, line=line.number, role=role)
        )

    def _total(self, event: Event, line: Line) -> None:
        component = event.rule.component
        assert component is not None
        if self.start.role is Role.MAIN:
            size = number_of_bytes(event.facts["mib"])
            self.start.totals[component] = (
                self.start.totals.get(component, 0) + size if component is Component.KV else size
            )
        if self.start.fit != "probing":
            self.start.seen.add(component)
            self._progress(line)
        planes = int(event.facts.get("planes") or 0)
        if planes:
            self._note("rs_planes", line)

    def _value(self, event: Event, line: Line) -> None:
        if self.start.fit == "probing":
            return
        if event.rule.id in ("v_slots", "v_slot"):
            self.start.role = Role.MAIN
            self._progress(line)
        if self.start.phase in (None, Phase.LOAD) and line.text.startswith("llama_"):
            self.start.phase = Phase.CONTEXT
        if self.start.role is Role.MAIN:
            self.start.values.update(event.facts)

    def _milestone(self, event: Event, line: Line) -> None:
        start = self.start
        rule = event.rule
        if rule.value == "sleep":
            start.buffers.clear()
            start.seen.clear()
            start.role, start.phase, start.contexts = Role.MAIN, Phase.LOAD, 0
            return
        if rule.value == "exited":
            start.exited = True
            start.phase = Phase.SHUTDOWN
            return
        if rule.id == "at_load_model" and self._over():
            self._new_start()
            start = self.start
        if start.fit == "probing" and rule.phase in (Phase.LOAD, Phase.CONTEXT):
            return
        if rule.phase is Phase.LOAD and start.role is Role.MMPROJ:
            start.role = Role.MAIN
        if rule.id == "at_context":
            start.contexts += 1
            if start.contexts > 1 and start.role is Role.MAIN:
                start.role = Role.DRAFT
        if rule.id == "at_saving":
            start.saving_line = line.number
        if rule.phase is Phase.SERVING:
            self._serving()
            start.ready = start.ready or rule.value == "ready"
            start.served = True
        elif start.phase not in _RUNTIME or rule.phase is Phase.WARMUP:
            start.phase = rule.phase
        self._progress(line)

    def _serving(self) -> None:
        self.start.phase = Phase.SERVING
        self.start.fit = None
        self.start.served = True
        if self.start.role is Role.DRAFT:
            self.start.role = Role.MAIN

    def _fit_begin(self, event: Event, line: Line) -> None:
        self.start.fit = (
            "probing" if event.rule.id == "fit_probe" else self.start.fit or "announced"
        )

    def _fit_end(self, event: Event, line: Line) -> None:
        start = self.start
        if event.rule.id == "fit_error":
            for cause in start.causes:
                cause.probe = cause.probe or cause.fatal is not True
            self._note("fit_failed", line)
        elif event.rule.id.startswith("fit_refused"):
            self._note("fit_refused", line)
        start.fit = None
        start.end = None
        start.totals = dict(start.totals)
        if start.phase not in _RUNTIME:
            start.phase = Phase.LOAD

    def _role(self, event: Event, line: Line) -> None:
        component = event.rule.component
        if component is Component.DRAFT:
            self.start.role = Role.DRAFT
        elif component is Component.MMPROJ:
            self.start.role = Role.MMPROJ
        else:
            self.start.role = Role.MAIN

    def _notice(self, event: Event, line: Line) -> None:
        if event.rule.value == "rpc":
            self.start.rpc = True
            return
        self._progress(line)
        self._note(event.rule.notice or "", line)

    def _note(self, name: str, line: Line) -> None:
        assert name in NOTICES
        # a repeated notice says nothing new unless its words differ
        if (key := f"{name}:{line.text}") in self.start.noticed:
            return
        if len(self.start.notices) >= KEEP:
            self.start.capped = True
            return
        self.start.noticed.add(key)
        self.start.notices.append(Notice(id=name, line=line.number, text=line.text))

    def _device(self, event: Event, line: Line) -> None:
        name = event.facts.get("name") or event.facts.get("name2")
        if name and len(self._devices) < KEEP:
            self._devices.add(name)

    def _begin(self, event: Event, line: Line) -> None:
        rule = event.rule
        if rule.id in self.start.begun or self._over():
            self._new_start()
        self.start.begun.add(rule.id)
        self._progress(line)
        if "verbosity" in event.facts:
            self.start.verbosity = (int(event.facts["verbosity"]), line)
        if "commit" in event.facts or "build" in event.facts:
            build = int(event.facts["build"])
            version = event.facts.get("version")
            self._engine = EngineTag(
                # a binary built outside of git calls itself build 0 or 1
                build=build if build > 1 else None,
                commit=event.facts.get("commit"),
                version=version,
            )

    # --- the verdict -------------------------------------------------------------------------------------

    def reading(self, exit_status: int | None = None) -> Reading:
        """What the lines so far say. ``exit_status`` as the shell or ``subprocess`` gives it."""
        start = self.start
        failure, secondary = self._verdict(exit_status)
        idle = failure is None and not (start.ready or start.served or start.exited)
        if idle and self._earlier is not None:
            start, (failure, *rest) = self._earlier[0], self._earlier[1]
            secondary = tuple(rest)
        notices = list(start.notices)
        if self.starts > 1 and start.any:
            notices.append(
                Notice(id="restarted", line=self.last.number, text=f"{self.starts} starts")
            )
        notices += self._derived_notices(start, failure)
        return Reading(
            era=self._era(),
            child=self.child,
            engine=self._engine,
            outcome=self._outcome(start, failure, exit_status),
            failure=failure,
            secondary=secondary[:KEEP],
            buffers=tuple(start.buffers),
            notices=tuple(notices),
            effective=_effective(start.values),
        )

    @property
    def failure(self) -> Failure | None:
        """The failure as far as the lines show it."""
        return self._verdict(None)[0]

    @property
    def effective(self) -> Effective:
        """The values that the engine said it runs with."""
        return _effective(self.start.values)

    def _verdict(self, exit_status: int | None) -> tuple[Failure | None, tuple[Failure, ...]]:
        start = self.start
        signal = _signal(exit_status)
        deaths = list(start.deaths)
        if signal in _DEADLY and not deaths:
            kind = Kind.KILLED if signal == 9 else Kind.CRASH
            deaths.append(
                Cause(
                    kind,
                    self.last.number,
                    self.last.text or f"ended by signal {signal}",
                    self.last.number,
                    "status",
                    component=Component.PROMPT_CACHE
                    if self.last.number - start.saving_line <= 10
                    else None,
                    phase=start.phase,
                    fatal=True,
                    inferred=True,
                )
            )
        real = [
            c
            for c in start.causes
            if not c.probe or (deaths and c is start.causes[-1] and start.fit == "probing")
        ]
        probes = [c for c in start.causes if c not in real]
        fatal = [c for c in real if self._is_fatal(c, deaths)]
        primary: Cause | None = None
        if fatal:
            primary = fatal[0]
            if (
                primary.retried
                and len(fatal) == 1
                and not deaths
                and start.end is None
                and primary.fatal is None
            ):
                primary = None
        consequences: list[Cause] = []
        if primary is not None:
            consequences = [c for c in fatal if c is not primary] + deaths
        elif deaths:
            primary = deaths[0]
            if primary.kind is Kind.KILLED and start.saved + start.checkpoints >= 1024 * MIB:
                primary.kind = Kind.STATE_GROWTH
                primary.component = (
                    Component.PROMPT_CACHE
                    if start.saved >= start.checkpoints
                    else Component.CHECKPOINTS
                )
                primary.inferred = True
            if (
                primary.kind is Kind.CRASH
                and primary.component is Component.PROMPT_CACHE
                and self._uses_rpc()
            ):
                primary.kind, primary.inferred = Kind.RPC, True
            consequences = deaths[1:]
        elif start.end is not None and not real:
            primary = start.end
            if "context" in start.end.text:
                primary.phase = Phase.CONTEXT
            else:
                primary.kind, primary.phase = Kind.MODEL, Phase.LOAD
            primary.fatal = True
        if primary is None:
            mild = [c for c in real if c.kind not in _MILD]
            order = {Kind.CACHE_FULL: 0, Kind.STATE_GROWTH: 1, Kind.REPROCESSING: 2}
            primary = (
                mild[0]
                if mild
                else min((c for c in real), key=lambda c: order[c.kind], default=None)
            )
        secondary = (
            [c for c in real if c is not primary and c not in consequences] + consequences + probes
        )
        if primary is None:
            return None, tuple(self._finish(c, deaths) for c in secondary)
        return self._finish(primary, deaths), tuple(
            self._finish(c, deaths) for c in sorted(secondary, key=lambda c: c.line)
        )

    def _uses_rpc(self) -> bool:
        return self.start.rpc or any(name.startswith("RPC") for name in self._devices)

    def _is_fatal(self, cause: Cause, deaths: list[Cause]) -> bool:
        start = self.start
        if cause.fatal is not None and not (
            cause.fatal is False and cause.kind not in _MILD and deaths
        ):
            return cause.fatal
        followed = any(cause.line - NEAR <= death.line <= cause.last + FAR for death in deaths)
        if followed and cause.kind not in _MILD:
            return True
        if cause.went_on:
            return False
        if cause.retried:
            later = [c for c in start.causes if c.line > cause.line and c.kind in _ALLOCATION]
            return bool(later) or start.end is not None
        if cause.kind in (Kind.ALLOCATION, Kind.BUFFER_LIMIT, Kind.MODEL):
            return True
        if cause.kind is Kind.RPC:
            return start.end is not None
        if cause.kind in (Kind.RUNTIME_ALLOCATION, Kind.BACKEND, Kind.ENVIRONMENT):
            return start.end is not None or (cause.kind is Kind.ENVIRONMENT and not start.served)
        return start.end is not None

    def _finish(self, cause: Cause, deaths: list[Cause]) -> Failure:
        component, inferred = cause.component, cause.inferred
        if (
            component is None
            and cause.kind in (Kind.ALLOCATION, Kind.BUFFER_LIMIT)
            and cause.role is Role.MAIN
        ):
            component = self._guess(cause)
            inferred = inferred or component is not None
        if cause.role is not Role.MAIN and (cause.kind in _ALLOCATION):
            component = Component.DRAFT if cause.role is Role.DRAFT else Component.MMPROJ
        device = self._device_of(cause)
        phase = Phase.FIT if cause.probe else cause.phase
        whole = cause.whole
        if (
            whole is None
            and cause.size is not None
            and device is not None
            and not device.startswith((*_CHUNKED, "RPC"))
            and cause.exact
        ):
            whole = cause.size
        if (
            whole is None
            and cause.kind in _ALLOCATION
            and component in self.start.totals
            and component not in self.start.seen
        ):
            whole = self.start.totals[component]
        return Failure(
            kind=cause.kind,
            component=component,
            device=device,
            bytes=cause.size,
            buffer_bytes=whole,
            phase=phase,
            fatal=self._is_fatal(cause, deaths),
            line=cause.line,
            text=cause.text,
            not_this=self._not_this(cause.kind, component, phase),
            evidence=Evidence.INFERRED if inferred else Evidence.NAMED,
        )

    def _guess(self, cause: Cause) -> Component | None:
        """Whose request it was, from what had been allocated before it. Only while starting."""
        seen = self.start.seen
        if cause.phase in _RUNTIME:
            return None
        if Component.RS in seen or Component.KV in seen:
            return Component.COMPUTE if Component.COMPUTE not in seen else None
        if Component.WEIGHTS in seen or cause.phase is Phase.CONTEXT:
            return Component.KV if Component.WEIGHTS in seen else None
        return Component.WEIGHTS if cause.phase is Phase.LOAD else None

    def _device_of(self, cause: Cause) -> str | None:
        if cause.device is not None:
            return cause.device
        if cause.family == "CPU":
            return "CPU"
        if cause.family is None:
            return None
        stems = _FAMILIES.get(cause.family, (cause.family,))
        named = sorted(d for d in self._devices if re.fullmatch(rf"(?:{'|'.join(stems)})\d*", d))
        if cause.index is not None:
            named = [d for d in named if d.rstrip("0123456789") + str(cause.index) == d]
        return named[0] if len(named) == 1 else None

    def _not_this(
        self, kind: Kind, component: Component | None, phase: Phase | None
    ) -> tuple[str, ...]:
        """What the log rules out: what had been allocated before, and what comes only later."""
        out: list[str] = []
        seen = self.start.seen
        if kind not in _ALLOCATION and kind not in (
            Kind.KILLED,
            Kind.STATE_GROWTH,
            Kind.CRASH,
            Kind.HANG,
        ):
            out.append("lack of memory")
        if kind is Kind.BUFFER_LIMIT:
            out.append("lack of memory")
        if kind in _ALLOCATION:
            after_load = phase in (Phase.CONTEXT, *_RUNTIME) or bool(
                seen & {Component.WEIGHTS, Component.KV, Component.RS}
            )
            past = [
                (Component.WEIGHTS, "the weights", after_load),
                (
                    Component.KV,
                    "the KV cache",
                    component is Component.RS or bool(seen & {Component.KV}),
                ),
                (
                    Component.RS,
                    "the recurrent state",
                    Component.RS in seen or component is Component.KV,
                ),
                (
                    Component.COMPUTE,
                    "the compute buffer",
                    Component.COMPUTE in seen
                    or component in (Component.KV, Component.RS, Component.WEIGHTS),
                ),
            ]
            out += [words for part, words, ruled_out in past if ruled_out and part is not component]
        if kind is not Kind.MODEL and (kind in _ALLOCATION or phase in (Phase.CONTEXT, *_RUNTIME)):
            out += ["the model file", "the tokenizer"]
        return tuple(out)

    def _derived_notices(self, start: Start, failure: Failure | None) -> list[Notice]:
        out: list[Notice] = []
        went_through = (
            start.phase in (Phase.CONTEXT, *_RUNTIME, Phase.SHUTDOWN)
            and "begin_system" in start.begun
        )
        if not start.seen:
            if start.verbosity is not None and start.verbosity[0] < 4:
                line = start.verbosity[1]
                out.append(Notice(id="sizes_hidden", line=line.number, text=line.text))
            elif self._stamped and start.verbosity is None and (went_through or start.ready):
                out.append(
                    Notice(id="sizes_hidden", line=self.last.number, text="no buffer size line")
                )
        elif (
            failure is not None
            and failure.component is not None
            and failure.kind in (Kind.ALLOCATION, Kind.BUFFER_LIMIT)
        ):
            if failure.component not in start.seen:
                out.append(Notice(id="size_line_absent", line=failure.line, text=failure.text))
        if start.capped:
            out.append(Notice(id="capped", line=self.last.number, text=f"more than {KEEP}"))
        return out

    def _outcome(
        self, start: Start, failure: Failure | None, exit_status: int | None
    ) -> LogOutcome:
        if (failure is not None and failure.fatal) or start.end is not None or start.deaths:
            return LogOutcome.FAILED
        if start.exited or exit_status == 0:
            return LogOutcome.EXITED
        if start.ready or start.served:
            return LogOutcome.STARTED
        return LogOutcome.UNKNOWN

    def _era(self) -> str:
        if self._engine.build is not None:
            return f"b{self._engine.build}-b{self._engine.build}"
        spans = list(self._eras)
        if not spans and self._stamped:
            spans = [STAMP_ERA]
        if not spans:
            return "unknown"
        first = max((a for a, _ in spans), default=OLDEST)
        final = min((b for _, b in spans), default=NEWEST)
        return f"b{first}-b{final}" if first <= final else "unknown"


_DEADLY: Final = (4, 6, 7, 8, 9, 11)


def _signal(exit_status: int | None) -> int | None:
    if exit_status is None:
        return None
    if exit_status < 0:
        return -exit_status
    return exit_status - 128 if exit_status > 128 else None


def _effective(values: dict[str, str]) -> Effective:
    def whole(name: str) -> int | None:
        return int(values[name]) if name in values else None

    unified = values.get("kv_unified")
    return Effective(
        n_ctx=whole("n_ctx"),
        n_ctx_seq=whole("n_ctx_seq"),
        n_seq_max=whole("n_seq_max"),
        n_batch=whole("n_batch"),
        n_ubatch=whole("n_ubatch"),
        kv_unified=None if unified is None else unified == "true",
        n_rs_seq=whole("n_rs_seq"),
        n_gpu_layers=whole("n_gpu_layers"),
        flash_attn=values.get("flash_attn"),
    )
