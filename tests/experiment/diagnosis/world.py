"""A world in which a trial takes microseconds: a model of a server, of memory and of time.

A server takes weights, then KV for its cells, recurrent state for its slots and a compute buffer;
what does not fit into the limit fails its start as llama-server does, in that order. Requests take
more. A test bends whatever it is about: an odd edge, runs that disagree, a clock that runs out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from arriero.base.buffers import HOST
from arriero.base.sizes import MIB
from arriero.base.words import Component, Evidence, Kind, LimitKind, Method, Phase, TrialOutcome
from arriero.command import Command, builtin_flags, parse_command
from arriero.experiment.diagnosis import NoForecast, Point, Problem, Reporter, run_diagnosis
from arriero.launch.context import context
from arriero.launch.slots import slots_of
from arriero.logs.model import Buffer, Effective, Failure
from arriero.process import Limit
from arriero.record import (
    DeviceRecord,
    Diagnosis,
    Peak,
    Plan,
    PlanBuffer,
    Requests,
    Sample,
    Speed,
    Step,
    Trial,
)
from arriero.trial import TrialSpec
from tests.examples import example_baseline
from tests.report import plans

DEVICE = "CPU"
TRAINED = 4096
STANDARD = 8
"""Requests of the standard load."""
STEP = Step(name="prompts in turn", sent=1, ok=1, failed=0, shown_by="a line")


def command_of(flags: str, environ: Mapping[str, str] | None = None) -> Command:
    # as many HTTP threads on every machine: their stacks are address space
    words = ["llama-server", "-m", "m.gguf", "--threads-http", "2", *flags.split()]
    return parse_command(words, builtin_flags(), environ or {})


def point_of(command: Command) -> Point:
    """What the server makes of a command."""
    slots = slots_of(command)
    made = context(command.number("-c") or TRAINED, slots.count, unified=slots.unified)
    return Point(slots.count, made.n_ctx, slots.unified, command.number("-ub") or 512)


@dataclass
class Server:
    """Bytes that a server takes, all of them in the memory that is limited."""

    weights: int = 256 * MIB
    libraries: int = 320 * MIB
    rs: int = 64 * MIB
    """Recurrent state of one slot."""
    kv: int = 4096
    """KV of one cell."""
    compute: Callable[[Point], int] = lambda point: (16 + point.slots) * MIB
    serving: int = 8 * MIB
    """What requests take on top of the start."""
    leak: int = 0
    """What each request leaves behind."""
    arenas: int = 0
    """What threads reserve without ``MALLOC_ARENA_MAX``."""
    cached: int = 0
    """What prompts that are kept take, where the command does not turn them off."""
    checkpoint: int | None = None
    breaks_at: int | None = None
    """A request that does not come back, whatever memory there is."""
    odd: Callable[[Point], TrialOutcome | None] = lambda point: None
    """How a start at a point ends whatever memory there is; null by memory."""

    def parts(self, point: Point) -> list[tuple[Component, int]]:
        """Buffers in the order in which a start allocates them."""
        return [
            (Component.WEIGHTS, self.weights),
            (Component.KV, self.kv * point.context.cells),
            (Component.RS, self.rs * point.slots),
            (Component.COMPUTE, self.compute(point)),
        ]

    def variable(self, point: Point) -> int:
        return sum(size for _, size in self.parts(point)[1:])

    def loaded(self, point: Point) -> int:
        return self.libraries + self.weights + self.variable(point)


@dataclass
class World:
    """A runner on a server of one's own making."""

    server: Server = field(default_factory=Server)
    limit: Limit | None = field(default_factory=lambda: Limit(2048 * MIB, LimitKind.ADDRESS_SPACE))
    host_free: int | None = None
    card: int | None = None
    """Bytes of the one card that everything goes to, in place of a limit."""
    copy: Path | None = None
    copy_server: Server | None = None
    """What the copy takes, where it is not what the model does."""
    seconds_each: float = 1.0
    fails_with: Failure | None = None
    """The failure of every start, if any."""
    odd_failure: Failure | None = None
    """The failure of odd starts, where it is not one of memory."""
    flaky: frozenset[int] = frozenset()
    """Trials that break on a request, whatever memory there is."""
    unnamed: Callable[[int], bool] = lambda n: False
    """Trials whose log lost the line that names the cause."""
    noise: Callable[[int], int] = lambda n: 0
    """Bytes that a trial takes more than the next."""
    moved: Callable[[int], str | None] = lambda n: None
    """What did not come back after a trial."""
    other_slots: Callable[[int], bool] = lambda n: False
    """Trials in which the server made one slot less than it was asked for."""
    interrupt_at: int | None = None
    hang_at: int | None = None
    clock: float = 0.0
    specs: list[TrialSpec] = field(default_factory=list)

    def now(self) -> float:
        return self.clock

    def settle(self) -> str | None:
        return self.moved(len(self.specs))

    def weightless(self) -> Path | None:
        return self.copy

    def run(self, spec: TrialSpec, seconds: float) -> Trial:
        assert seconds > 0, "a trial without time"
        self.specs.append(spec)
        if spec.n == self.interrupt_at:
            raise KeyboardInterrupt
        on_copy = self.copy is not None and spec.command.value("-m") == str(self.copy)
        hangs = spec.n == self.hang_at
        self.clock += seconds if hangs else 0.1 if on_copy else self.seconds_each
        return self._trial(spec, hangs)

    def _trial(self, spec: TrialSpec, hangs: bool) -> Trial:
        point, server = point_of(spec.command), self._server(spec)
        base = (0 if self.card else server.libraries) + self.noise(spec.n)
        if "MALLOC_ARENA_MAX" not in {**spec.command.environ, **spec.env}:
            base += server.arenas
        taken, buffers, failure = self._load(server, spec.n, point, base)
        if hangs:
            failure = Failure(kind=Kind.HANG, fatal=True, line=1, text="no log line")
        ready = failure is None
        peak, requests = taken, Requests()
        if ready:
            failure, peak, requests = self._serve(spec, taken)
        outcome = TrialOutcome.FAILED
        if ready:
            outcome = TrialOutcome.SERVED if failure is None else TrialOutcome.READY
        slots = point.slots - (1 if self.other_slots(spec.n) else 0)
        left = None if self.limit is None else self.limit.bytes - peak
        return Trial(
            n=spec.n, purpose=spec.purpose, change=dict(spec.change), argv=spec.command.argv,
            env=dict(spec.env), outcome=outcome, failure=failure, buffers=tuple(buffers),
            effective=self._effective(point, slots), ready_s=0.5 if ready else None,
            load_s=0.6 if ready else None, seconds=self.seconds_each,
            peak=Peak(address_space=peak, anonymous=peak, cgroup=peak), headroom=left,
            requests=requests, checkpoint_bytes=server.checkpoint if ready else None,
            steps=(STEP,) if ready else (),
            samples=(Sample(at=0.5, address_space=taken, anonymous=taken, requests=0),),
            speed=Speed(), valid=True, why_invalid=None,
        )  # fmt: skip

    def _effective(self, point: Point, slots: int) -> Effective:
        seen = point.context
        return Effective(
            n_ctx=seen.n_ctx, n_ctx_seq=seen.n_ctx_seq, n_seq_max=slots,
            kv_unified=point.unified, n_ubatch=point.n_ubatch, n_gpu_layers=-1,
        )  # fmt: skip

    @property
    def capacity(self) -> int:
        known = self.card or (self.limit.bytes if self.limit else self.host_free)
        return known or 1 << 60

    def _server(self, spec: TrialSpec) -> Server:
        copied = self.copy is not None and spec.command.value("-m") == str(self.copy)
        return self.copy_server if copied and self.copy_server is not None else self.server

    def _load(
        self, server: Server, n: int, point: Point, taken: int
    ) -> tuple[int, list[Buffer], Failure | None]:
        """Bytes taken, buffers printed, and what failed, if the start did."""
        if self.fails_with is not None:
            return taken, [], self.fails_with
        if server.odd(point) is TrialOutcome.FAILED:
            return taken, [], self.odd_failure or refused(Component.COMPUTE, 1, named=True)
        buffers: list[Buffer] = []
        for component, size in server.parts(point):
            if taken + size > self.capacity:
                return taken, buffers, refused(component, size, named=not self.unnamed(n))
            taken += size
            buffers.append(Buffer(component=component, device=DEVICE, bytes=size, line=1))
        return taken, buffers, None

    def _serve(self, spec: TrialSpec, taken: int) -> tuple[Failure | None, int, Requests]:
        """What broke the load, if anything did; bytes at the peak; requests."""
        server, asked = self._server(spec), max(STANDARD, spec.workload.min_requests)
        peak = taken + server.serving + server.leak * asked
        if spec.command.value("-cram") != "0":
            peak += server.cached
        odd = server.odd(point_of(spec.command)) is TrialOutcome.READY or spec.n in self.flaky
        broke = server.breaks_at is not None and asked >= server.breaks_at
        if peak > self.capacity or odd:
            return broken("bad_alloc"), self.capacity, Requests(sent=asked, ok=asked - 1, failed=1)
        if broke:
            crash = Failure(kind=Kind.CRASH, fatal=True, line=9, text="SIGSEGV")
            return crash, peak, Requests(sent=asked, ok=asked - 1, failed=1)
        return None, peak, Requests(sent=asked, ok=asked, failed=0)


def refused(component: Component, size: int, *, named: bool) -> Failure:
    """The refusal of a buffer, as its log tells it."""
    return Failure(
        kind=Kind.ALLOCATION, component=component if named else None, device=DEVICE, bytes=size,
        phase=Phase.CONTEXT, fatal=True, line=7, text="failed to allocate buffer",
        evidence=Evidence.NAMED if named else Evidence.INFERRED,
    )  # fmt: skip


def broken(text: str) -> Failure:
    return Failure(
        kind=Kind.RUNTIME_ALLOCATION, phase=Phase.SERVING, fatal=False, line=8, text=text
    )


class Knowing(NoForecast):
    """A forecast that knows the server, or is as wrong as a test wants it to be."""

    def __init__(self, server: Server, wrong: Callable[[int], int] = lambda size: size) -> None:
        self.server, self.wrong = server, wrong

    def total(self, points: Sequence[Point], device: str | None = None) -> list[int | None]:
        return [self.wrong(self.server.variable(point)) for point in points]

    def plan(self, command: Command, asked: bool) -> Plan | None:
        point = point_of(command)
        buffers = tuple(
            PlanBuffer(component=component, device=DEVICE, bytes=size, method=Method.EXACT)
            for component, size in self.server.parts(point)
        )
        pool = msgspec.structs.replace(
            plans.example().pools[0], devices=(HOST,), at_start=self.server.loaded(point)
        )
        return msgspec.structs.replace(plans.example(), buffers=buffers, pools=(pool,))


class Listening(Reporter):
    """Keeps every record that it was told to save."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, str]] = []
        self.saved: list[Diagnosis] = []
        self.heard: list[int] = []

    def starting(self, step: str, why: str) -> None:
        self.steps.append((step, why))

    def tried(self, command: Command, trial: Trial) -> None:
        self.heard.append(trial.n)

    def save(self, record: Diagnosis) -> str | None:
        self.saved.append(record)
        return None


def diagnose(
    world: World, flags: str, forecast: NoForecast | None = None, **options: Any
) -> Diagnosis:
    """The diagnosis of a command in this world, by a forecast that knows it unless one is given."""
    chosen: dict[str, Any] = {"verify_requests": 64, **options}
    reporter = chosen.pop("reporter", None)
    command = command_of(flags, chosen.pop("environ", None))
    baseline = example_baseline()
    devices = baseline.devices if chosen.pop("devices", False) else ()
    if world.card is not None:
        devices = (DeviceRecord(name=DEVICE, description="", total=world.card, free=world.card),)
    baseline = msgspec.structs.replace(baseline, devices=devices)
    assert baseline.model is not None
    model = msgspec.structs.replace(baseline.model, n_ctx_train=chosen.pop("trained", TRAINED))
    baseline = msgspec.structs.replace(baseline, model=model)
    world.limit = chosen.pop("limit", world.limit)
    problem = Problem(id="diag-1", command=command, baseline=baseline, **chosen)
    return run_diagnosis(problem, world, forecast or Knowing(world.server), reporter)
