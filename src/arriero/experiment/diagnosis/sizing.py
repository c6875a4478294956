"""What fits: the memory that ran out, what each setting will take of it, what should stay free."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

from arriero.advice import ARENAS
from arriero.base.sizes import MIB
from arriero.base.words import Kind, LimitKind, TrialOutcome
from arriero.command import Command
from arriero.experiment.diagnosis.footprint import Footprint, kept_by_host
from arriero.experiment.diagnosis.printed import PrintedSizes
from arriero.experiment.diagnosis.problem import Problem, controlled_env
from arriero.experiment.diagnosis.protocols import Forecast, Point, Runner, Sizes
from arriero.experiment.diagnosis.record import Record
from arriero.launch import launch_of
from arriero.launch.context import asked_context, context_step
from arriero.launch.slots import slots_of
from arriero.memory.threads import stack_bytes
from arriero.record import Trial

SMALL_CONTEXT: Final = 2048
MEMORY_KINDS: Final = frozenset(
    {Kind.ALLOCATION, Kind.BUFFER_LIMIT, Kind.RUNTIME_ALLOCATION, Kind.KILLED, Kind.STATE_GROWTH}
)
_AROUND: Final = 8
"""Points on each side of an edge over which the bytes of a step are measured."""
_FINE: Final = 64
"""A grain is at most this part of the value: an edge is known to about 1.5 %."""
_LEAST_MARGIN: Final = 64 * MIB
_FREE_SHARE: Final = 0.9
"""The part of the host's free memory that a start may take where nothing would stop it."""


@dataclass(frozen=True)
class Account:
    """What a failure is about: the memory that ran out, and how much of it there is.

    ``kind`` is that of the limit that was set; without one it is a ``device`` of the engine's, or
    the host where both are null.
    """

    kind: LimitKind | None
    device: str | None
    capacity: int | None

    def used(self, trial: Trial) -> int | None:
        """Bytes that a trial took of it at its peak."""
        if self.kind is LimitKind.ADDRESS_SPACE:
            return trial.peak.address_space
        if self.kind is LimitKind.CGROUP:
            return trial.peak.cgroup
        if self.device is not None:
            return sum(b.bytes for b in trial.buffers if b.device == self.device) or None
        return trial.peak.anonymous

    def used_when_ready(self, trial: Trial) -> int | None:
        """The same before the first request, so that what grows with requests is left out."""
        if trial.ready_s is None or trial.load_s is None:
            return None
        if self.device is not None and self.kind is None:
            return self.used(trial)
        idle = [s for s in trial.samples if s.requests == 0 and s.at <= trial.load_s]
        if self.kind is LimitKind.ADDRESS_SPACE:
            values = [s.address_space for s in idle if s.address_space]
        else:
            values = [s.anonymous for s in idle if s.anonymous]
        return max(values, default=None)


class Sizing:
    """Sizes of one command at any setting, by the forecast and by what its trials showed."""

    def __init__(
        self, problem: Problem, runner: Runner, forecast: Forecast, record: Record
    ) -> None:
        self._problem, self._runner = problem, runner
        self._forecast, self._record = forecast, record

    # ---- as given --------------------------------------------------------------------------

    @property
    def slots(self) -> int:
        """Slots of the command as given."""
        given = slots_of(self._problem.command)
        seen = (trial.effective.n_seq_max for trial in self._record.as_given)
        return given.count if given.given else next((n for n in seen if n), given.count)

    @property
    def unified(self) -> bool:
        """Whether slots share one KV cache as given."""
        return slots_of(self._problem.command).unified

    @property
    def tokens(self) -> int:
        """Context of all slots together, as given."""
        asked = asked_context(self._problem.command).tokens
        if asked:
            return asked
        seen = (trial.effective.n_ctx for trial in self._record.as_given)
        return next((n for n in seen if n), self.trained or SMALL_CONTEXT)

    @property
    def trained(self) -> int:
        """Context that the model was trained with; 0 where that is not known."""
        model = self._problem.baseline.model
        return (model.n_ctx_train or 0) if model else 0

    @property
    def given(self) -> Point:
        return Point(self.slots, self.tokens, self.unified)

    # ---- the memory that ran out -----------------------------------------------------------

    @property
    def account(self) -> Account:
        """The memory that ran out: the limit, the device that refused, or the host."""
        failure = self._record.failure
        devices = {d.name: d.free for d in self._problem.baseline.devices}
        if self._runner.limit is None and failure is not None and failure.device in devices:
            return Account(None, failure.device, devices[failure.device])
        return self.host_account

    @property
    def host_account(self) -> Account:
        """Where the caches grow: the limit that was set, or the host."""
        limit, free = self._runner.limit, self._runner.host_free
        if limit is None:
            return Account(None, None, free)
        # A limit of RAM gives no more of it than there is; address space is another thing.
        most = free if limit.kind is LimitKind.CGROUP else None
        return Account(limit.kind, None, min(limit.bytes, most or limit.bytes))

    @property
    def margin(self) -> int:
        """Bytes that a recommended start keeps free."""
        return max(_LEAST_MARGIN, (self.account.capacity or 0) // 32)

    # ---- what a start takes ----------------------------------------------------------------

    def host_needs(self, command: Command) -> int | None:
        """Bytes that the host must have for a start. The engine is asked only where it matters."""
        needed = None
        for asked in (False, True):
            plan = self._forecast.plan(command, asked)
            needed = None if plan is None else kept_by_host(plan)
            if needed is None or self.host_has_room(needed):
                break
        return needed

    def host_has_room(self, needed: int) -> bool:
        free = self._runner.host_free
        return free is None or needed <= free * _FREE_SHARE

    def total(self, point: Point) -> int | None:
        """Bytes that a start takes at a point, before the first request; null without a basis."""
        footprint = self._footprint(serving=False)
        return footprint.totals([point])[0] if footprint else None

    def fitting(
        self, points: Sequence[Point], margin: int = 0, *, serving: bool = True
    ) -> int | None:
        """How many of the points, in order, are expected to fit; null without a basis."""
        footprint, capacity = self._footprint(serving=serving), self.account.capacity
        if footprint is None or capacity is None:
            return None
        return footprint.fitting(points, capacity - margin)

    def _footprint(self, *, serving: bool) -> Footprint | None:
        """Anchored to the most telling trial so far, under load or at the moment it was ready."""
        account = self.account
        stack = stack_bytes() if account.kind is LimitKind.ADDRESS_SPACE else 0
        for sizes, trial in self._anchors():
            loaded = serving and trial is not self._record.small
            used = account.used(trial) if loaded else account.used_when_ready(trial)
            if used is None:
                continue
            if serving and not loaded:  # nothing has shown yet what requests take without caches
                used += self._differs_by(None)
            found = Footprint.anchored(
                sizes,
                used,
                self._point_of(trial),
                stack=stack,
                threads_asked=launch_of(self._problem.command).http_threads,
                device=account.device,
            )
            if found is not None:
                return found
        return None

    def _anchors(self) -> Iterator[tuple[Sizes, Trial]]:
        """Sizes and a trial to anchor them to, the most telling first.

        A trial in the controlled environment whose caches do not grow is best, the latest of those;
        the baseline counts up to the moment it was ready, since its caches grow with requests.
        """
        good = [t for t in self._record.trials if t.valid and t.outcome is not TrialOutcome.FAILED]
        telling = sorted(good, key=lambda t: (t.outcome is TrialOutcome.SERVED, t.n))[::-1]
        env = controlled_env(self._problem.command, self._runner.limit)
        forecasts: tuple[Sizes, ...] = (self._forecast, PrintedSizes(good))
        for sizes, trial in product(forecasts, telling):
            if env.items() <= trial.env.items():
                yield sizes, trial

    def _point_of(self, trial: Trial) -> Point:
        seen = trial.effective
        return Point(seen.n_seq_max or self.slots, seen.n_ctx or self.tokens, bool(seen.kv_unified))

    # ---- what another run may take ---------------------------------------------------------

    def clear(self, trial: Trial) -> bool:
        """Whether a trial served with so much left that another run of it would serve too.

        That needs memory that was counted while it served, under a limit, and a failure that is
        about memory: what dies of something else may do so at any size.
        """
        used, capacity = self.account.used(trial), self.account.capacity
        failure, limit = self._record.failure, self._runner.limit
        if trial.outcome is not TrialOutcome.SERVED or failure is None or limit is None:
            return False
        if failure.kind not in MEMORY_KINDS or used is None or capacity is None:
            return False
        if limit.kind is LimitKind.ADDRESS_SPACE and not self._arenas_are_pinned(trial):
            return False
        return capacity - used >= self._differs_by(trial)

    def grain(self, points: Sequence[Point], edge: int) -> tuple[int, int]:
        """By how many steps of the points, and bytes, two runs of one command may differ.

        1 and 0 where one step takes more than that, or where so many steps would be a large part of
        the value itself.

        Args:
            edge: How many of the points are expected to fit.
        """
        footprint, seen = self._footprint(serving=True), self._record.latest_served
        if footprint is None or self._runner.limit is None or not 0 < edge <= len(points):
            return 1, 0
        low, high = max(0, edge - _AROUND), min(len(points), edge + _AROUND) - 1
        first, last = footprint.totals([points[low], points[high]])
        if first is None or last is None or last <= first:
            return 1, 0
        differs = self._differs_by(seen)
        grain = differs * (high - low) // (last - first)
        return (grain, differs) if 1 < grain <= edge // _FINE else (1, 0)

    def _differs_by(self, trial: Trial | None) -> int:
        """Bytes that two runs of one command may differ by at their peak: what requests took in
        this one and as much again, and never less than an eighth of the margin."""
        least = self.margin // 8
        ready = self.account.used_when_ready(trial) if trial else None
        peak = self.account.used(trial) if trial else None
        return least if ready is None or peak is None else max(least, 2 * (peak - ready))

    def _arenas_are_pinned(self, trial: Trial) -> bool:
        env = {**self._problem.command.environ, **trial.env}
        return all(env.get(name) == value for name, value in ARENAS.env.items())

    # ---- what to recommend -----------------------------------------------------------------

    def may_fit(self, n_ubatch: int) -> bool:
        """Whether another micro-batch is worth a launch: by the sizes, where they can be said."""
        point = Point(self.slots, self.tokens, self.unified, n_ubatch)
        fits = self.fitting([point], self.margin)
        return fits is None or fits > 0

    def safe_slots(self, served: int) -> list[int]:
        """Slot counts to recommend: the largest with a margin, then half of it."""
        points = [Point(n, self.tokens, self.unified) for n in range(1, served + 1)]
        best = self.fitting(points, self.margin)
        best = max(1, served // 2 if best is None else best)
        if best > 8:
            best -= best % 4
        return sorted({best, max(1, best // 2)}, reverse=True)

    def safe_context(self, served: int, held: int) -> int:
        """The largest context with a margin, in whole steps."""
        step = context_step(held, unified=self.unified)
        points = [Point(held, tokens, self.unified) for tokens in range(step, served + 1, step)]
        fit = self.fitting(points, self.margin)
        best = served if fit is None else max(1, fit) * step
        best = min(best, self.tokens)
        return best - best % 1024 if best > 4096 and step <= 1024 else best
