"""The procedure: start small, then as given, name the failure, find the boundaries, prove a fix.

One effective variable changes at a time; what else moved makes a trial invalid. Every number in the
result was shown by a trial, and the record is valid at any moment: it is saved after each trial.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, Final

import msgspec

from arriero.advice import (
    ARENAS,
    Change,
    caches_bounded,
    caches_off,
    host_caches,
    remedies,
    untried,
)
from arriero.advice import context as to_context
from arriero.advice import slots as to_slots
from arriero.base.sizes import human
from arriero.base.words import Component, Cost, Evidence, Kind, LimitKind, TrialOutcome
from arriero.command import Command
from arriero.experiment.diagnosis.case import (
    Account,
    Case,
    Point,
)
from arriero.experiment.diagnosis.evidence import (
    boundary_of,
    difference,
    verdict_of,
    what_moved,
    why,
    with_component,
)
from arriero.experiment.diagnosis.footprint import Footprint, kept_by_host
from arriero.experiment.diagnosis.search import SOFT_LAUNCHES, Search
from arriero.experiment.diagnosis.sizes import PrintedSizes
from arriero.experiment.diagnosis.slopes import slopes
from arriero.launch.context import context_step
from arriero.launch.slots import AUTO_SLOTS
from arriero.logs.model import Failure
from arriero.machine.cpu import INSTEAD
from arriero.memory.threads import stack_bytes
from arriero.record import (
    Boundary,
    Diagnosis,
    Recommendation,
    Trial,
    Verdict,
    WorstCase,
)
from arriero.trial import Bench, TrialSpec, Workload, run_trial

SMALL_CONTEXT: Final = 2048
TYPICAL_LAUNCHES: Final = 9
"""Small, as given, three around the edge of slots, three around that of context, the proof."""
MEMORY_KINDS: Final = frozenset(
    {Kind.ALLOCATION, Kind.BUFFER_LIMIT, Kind.RUNTIME_ALLOCATION, Kind.KILLED, Kind.STATE_GROWTH}
)
_HOPELESS: Final = frozenset({Kind.CONFIG, Kind.MODEL, Kind.ENVIRONMENT})
"""Kinds that no amount of memory changes: further launches would show the same."""


class OutOfBudgetError(Exception):
    """No launch or no time is left; what was found so far stands."""


@dataclass(frozen=True)
class Base:
    """A command that trials vary, and what is set beside it."""

    command: Command
    env: Mapping[str, str]


@dataclass(frozen=True)
class Candidate:
    """A command to prove, with what it changes and what that costs."""

    command: Command
    env: Mapping[str, str]
    changes: tuple[tuple[str, Cost], ...]


class Diagnoser:
    """Runs one diagnosis. ``result`` is valid at any moment, also after an exception."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.started = time.monotonic()
        self.trials: list[Trial] = []
        self.notes: list[str] = []
        self.not_tried: list[str] = []
        self.boundaries: dict[str, Boundary] = {}
        self.verdict: Verdict | None = None
        self.recommendation: Recommendation | None = None
        self.complete = False
        self.interrupted = False
        self.launches = 0
        self.reference: Trial | None = None
        self._copy: Path | None = None

    # ---- the record ------------------------------------------------------------------------

    @property
    def result(self) -> Diagnosis:
        return Diagnosis(
            id=self.case.id,
            baseline=self.case.baseline,
            trials=tuple(self.trials),
            verdict=self.verdict,
            boundary=dict(self.boundaries),
            slopes=slopes(self.trials),
            recommendation=self.recommendation,
            not_tried=tuple(self.not_tried),
            notes=tuple(self.notes),
            complete=self.complete,
            interrupted=self.interrupted,
            launches=self.launches,
            seconds=round(time.monotonic() - self.started, 2),
        )

    def run(self) -> Diagnosis:
        """Go through the procedure; save after every step.

        An interruption ends it with what was found so far.
        """
        try:
            self._procedure()
        except OutOfBudgetError as why:
            self.notes.append(str(why))
        except KeyboardInterrupt:
            self.interrupted = True
            self.notes.append("interrupted: what is here was shown before that")
        else:
            self.complete = True
        finally:
            self.case.save(self.result)
        return self.result

    def _procedure(self) -> None:
        small = self._baseline()
        if small is None:
            return
        if small.failure is not None and small.failure.kind in _HOPELESS:
            self._blame(small)
            return
        given = self._as_given()
        if given is None and self.verdict is None:
            return
        if given is not None and given.outcome is TrialOutcome.SERVED:
            self._recommend_as_given(given)
            return
        if given is not None:
            self._blame(given)
        failure = self.verdict.failure if self.verdict else None
        if failure is None or failure.kind in _HOPELESS:
            return
        if small.outcome is TrialOutcome.FAILED:
            self._placement()
            return
        self.not_tried += untried(failure, self.case.command)
        if self._depends_on_size(failure):
            self._boundaries(small)
        self._recommend(failure)

    # ---- single trials ---------------------------------------------------------------------

    def _trial(
        self,
        purpose: str,
        command: Command,
        env: Mapping[str, str],
        *,
        workload: Workload | None = None,
        change: Mapping[str, tuple[Any, Any]] | None = None,
    ) -> Trial:
        """One launch; repeated once if something else than the variable moved."""
        for attempt in (1, 2):
            self._check_budget()
            spec = TrialSpec(
                n=self.launches + 1,
                purpose=purpose,
                command=command,
                change=change if change is not None else difference(self.case.command, command),
                env=env,
                workload=workload or self._load(),
            )
            self.launches += 1
            self.case.on_step(*_step(purpose, attempt))
            trial = self._explained(run_trial(spec, self._bench()), command)
            failure = trial.failure
            cut = self._seconds_left <= 0 and failure is not None and failure.kind is Kind.HANG
            moved = "cut off: --max-time was over" if cut else self._moved(trial, command)
            if moved:
                trial = msgspec.structs.replace(trial, valid=False, why_invalid=moved)
            self.trials.append(trial)
            self.case.save(self.result)
            if cut:
                raise OutOfBudgetError("stopped: --max-time was over before the last trial was")
            if trial.valid:
                self.case.ran(command, trial)
            if trial.valid or attempt == 2:
                return trial
        raise AssertionError("unreachable")

    def _explained(self, trial: Trial, command: Command) -> Trial:
        """With the component that failed, where the log lost it and other evidence has it."""
        failure = self._named_by_size(trial.failure, command)
        same = failure is trial.failure
        return trial if same else msgspec.structs.replace(trial, failure=failure)

    def _named_by_size(self, failure: Failure | None, command: Command) -> Failure | None:
        if failure is None or failure.evidence is Evidence.NAMED:
            return failure
        return with_component(failure, self.trials, self.case.plan(command, True))

    def _moved(self, trial: Trial, command: Command) -> str | None:
        return what_moved(trial, command, self._layers_before(command)) or self.case.settle()

    def _bench(self) -> Bench:
        """With no more patience than there is time."""
        bench = self.case.bench
        patience = replace(bench.patience, whole_s=self._seconds_left)
        return replace(bench, patience=patience)

    def _load(self, requests: int = 0) -> Workload:
        return Workload(min_requests=requests, timeout_s=self.case.bench.patience.request_s)

    @property
    def _seconds_left(self) -> float:
        limit = self.case.max_time
        return math.inf if limit is None else limit - (time.monotonic() - self.started)

    def _check_budget(self) -> None:
        if self.launches >= self.case.max_launches:
            raise OutOfBudgetError(f"stopped after {self.launches} launches")
        typical = max((t.seconds for t in self.trials), default=0.0)
        if self._seconds_left <= typical:
            spent = time.monotonic() - self.started
            raise OutOfBudgetError(
                f"stopped after {spent:.0f} s: another launch would not fit into --max-time"
            )

    def _layers_before(self, command: Command) -> int | None:
        """Layers that the reference offloaded, where this command asks for the same."""
        same = command.value("-ngl") == self.case.command.value("-ngl")
        return self.reference.effective.n_gpu_layers if self.reference and same else None

    # ---- step 1 and 2 ----------------------------------------------------------------------

    @property
    def _env(self) -> dict[str, str]:
        """Set in every controlled trial: makes the address space of a run repeatable."""
        limit = self.case.limit
        if limit is not None and limit.kind is LimitKind.ADDRESS_SPACE:
            return {k: v for k, v in ARENAS.env.items() if k not in self.case.command.environ}
        return {}

    def _baseline(self) -> Trial | None:
        given = self.case.command
        asked = given.number("-c") or SMALL_CONTEXT
        change = Change(
            "one slot, short context",
            Cost.CONTEXT,
            "the smallest start that still loads everything",
            {"-np": "1", "-c": str(min(asked, SMALL_CONTEXT))},
        )
        command = change.apply(given)
        if self._too_dangerous("even one slot with a short context", self._needed(command)):
            self._from_log()
            return None
        trial = self._named("baseline: one slot, short context", command, self._env)
        if trial.outcome is not TrialOutcome.FAILED:
            self.reference = trial
        return trial

    def _as_given(self) -> Trial | None:
        given = self.case.command
        if self._from_log():
            return None
        footprint = self._footprint(serving=False)
        planned = footprint.totals([self.given_point])[0] if footprint else self._needed(given)
        if self._too_dangerous("the command as given", planned):
            return None
        # A crash on a later request is looked for here, and what serves is thereby verified.
        workload = self._load(self.case.verify_requests)
        return self._named("as given", given, {}, workload=workload, change={})

    def _from_log(self) -> bool:
        """Take the failure of a log that was given instead of starting the command."""
        log = self.case.from_log
        if log is None or log.failure is None:
            return False
        failure = self._named_by_size(log.failure, self.case.command) or log.failure
        self.verdict = verdict_of(failure, None)
        self.notes.append("the command as given was not started: its failure is from the log")
        return True

    def _named(
        self,
        purpose: str,
        command: Command,
        env: Mapping[str, str],
        *,
        workload: Workload | None = None,
        change: Mapping[str, tuple[Any, Any]] | None = None,
    ) -> Trial:
        """A trial whose failure the log names, if a second one can show it.

        The engine's logger is asynchronous: the line that names the cause may be lost once.
        """
        trial = self._trial(purpose, command, env, workload=workload, change=change)
        failure = trial.failure
        if failure is None or failure.evidence is Evidence.NAMED or failure.kind is Kind.HANG:
            return trial
        once_more = f"{purpose.partition(':')[0]}: once more, the log lacks the cause"
        try:
            again = self._trial(once_more, command, env, workload=workload, change=change)
        except OutOfBudgetError:
            return trial  # what it showed stands; whoever goes on is told the same
        if again.failure is not None and again.failure.evidence is Evidence.NAMED:
            return again
        if again.outcome is TrialOutcome.SERVED:
            self.notes.append("it failed once and served once: it is at an edge")
        told = again.failure is not None and again.failure.component is not None
        return again if told and failure.component is None else trial

    def _needed(self, command: Command) -> int | None:
        """Bytes that the host must have for a start. The engine is asked only where it matters."""
        for asked in (False, True):
            plan = self.case.plan(command, asked)
            needed = None if plan is None else kept_by_host(plan)
            if needed is None or self._has_room(needed):
                break
        return needed

    def _has_room(self, needed: int) -> bool:
        return self.case.host_free is None or needed <= self.case.host_free * 0.9

    def _too_dangerous(self, what: str, needed: int | None) -> bool:
        """Whether a start could take the machine down, and was left out for that."""
        case = self.case
        if case.limit is not None or case.as_given or needed is None or self._has_room(needed):
            return False
        self.notes.append(
            f"{what} would take about {human(needed)}; this machine has"
            f" {human(case.host_free or 0)} free, and nothing would stop it:"
            " use --limit, --from-log or --as-given"
        )
        self.not_tried.append(f"{what} (--as-given starts it all the same)")
        return True

    def _blame(self, trial: Trial) -> None:
        if trial.failure is not None:
            self.verdict = verdict_of(trial.failure, trial.n)
            if trial.failure.cpu is not None:
                self.notes.append(INSTEAD)

    def _depends_on_size(self, failure: Failure) -> bool:
        """Whether slots and context matter: memory ran out, it died at the limit, or the start as
        given died where the small one did not."""
        if failure.kind in MEMORY_KINDS or failure.component is Component.GRAPH:
            return True
        last = next((t for t in reversed(self.trials) if t.failure is failure), None)
        if last is None or failure.kind not in {Kind.CRASH, Kind.BACKEND}:
            return False
        limit = self.case.limit
        near = limit is not None and last.headroom is not None
        size = min(limit.bytes, self.case.host_free or limit.bytes) if limit else 0
        at_limit = near and (last.headroom or 0) < size // 16
        return at_limit or last.outcome is TrialOutcome.FAILED

    # ---- points, sizes, capacity -----------------------------------------------------------

    @property
    def given_slots(self) -> int:
        seen = [t.effective.n_seq_max for t in self.trials if not t.change]
        asked = self.case.command.number("-np")
        return asked if asked and asked > 0 else next((s for s in seen if s), AUTO_SLOTS)

    @property
    def unified(self) -> bool:
        """Whether slots share one KV cache as given: left to the server, they do."""
        command = self.case.command
        switch = command.switch("--kv-unified")
        asked = command.number("-np")
        return switch if switch is not None else not (asked and asked > 0)

    @property
    def given_tokens(self) -> int:
        asked = self.case.command.number("-c")
        if asked:
            return asked
        seen = [t.effective.n_ctx for t in self.trials if not t.change]
        model = self.case.baseline.model
        trained = model.n_ctx_train if model else None
        return next((n for n in seen if n), trained or SMALL_CONTEXT)

    @property
    def given_point(self) -> Point:
        return Point(self.given_slots, self.given_tokens, self.unified)

    def _point_of(self, trial: Trial) -> Point:
        seen = trial.effective
        return Point(
            seen.n_seq_max or self.given_slots,
            seen.n_ctx or self.given_tokens,
            bool(seen.kv_unified),
        )

    @property
    def account(self) -> Account:
        """The memory that ran out: the limit, the device that refused, or the host."""
        failure = self.verdict.failure if self.verdict else None
        devices = {d.name: d.free for d in self.case.baseline.devices}
        if self.case.limit is None and failure is not None and failure.device in devices:
            return Account(None, failure.device, devices[failure.device])
        return self.host_account

    @property
    def host_account(self) -> Account:
        """Where the caches grow: the limit that was set, or the host."""
        limit = self.case.limit
        if limit is not None:
            # A limit of RAM gives no more of it than there is; address space is another thing.
            most = self.case.host_free if limit.kind is LimitKind.CGROUP else None
            return Account(limit.kind, None, min(limit.bytes, most or limit.bytes))
        return Account(None, None, self.case.host_free)

    def _footprint(self, *, serving: bool) -> Footprint | None:
        """Anchored to the most telling trial so far, under load or at the moment it was ready.

        A trial in the controlled environment whose caches do not grow is best, the latest of those;
        the baseline counts up to the moment it was ready, since its caches grow with requests.
        """
        account = self.account
        stack = stack_bytes() if account.kind is LimitKind.ADDRESS_SPACE else 0
        asked = self.case.command.number("--threads-http")
        good = [t for t in self.trials if t.valid and t.outcome is not TrialOutcome.FAILED]
        telling = sorted(good, key=lambda t: (t.outcome is TrialOutcome.SERVED, t.n))[::-1]
        for sizes, trial in product(filter(None, (self.case.planned, PrintedSizes(good))), telling):
            if not self._env.items() <= trial.env.items():
                continue
            loaded = serving and trial is not self.trials[0]
            total = account.used(trial) if loaded else account.used_when_ready(trial)
            if total is None:
                continue
            found = Footprint.anchored(
                sizes,
                total,
                self._point_of(trial),
                stack=stack,
                threads_asked=asked,
                device=account.device,
            )
            if found is not None:
                return found
        return None

    def _fitting(self, points: list[Point], margin: int = 0, *, serving: bool = True) -> int | None:
        """How many of the points, in order, are expected to fit; null without a basis."""
        footprint, capacity = self._footprint(serving=serving), self.account.capacity
        if footprint is None or capacity is None:
            return None
        return footprint.fitting(points, capacity - margin)

    # ---- boundaries ------------------------------------------------------------------------

    def _boundaries(self, small: Trial) -> None:
        base = self._base(small)
        if self.given_slots > 1:
            self._search_slots(base)
        found = self.boundaries.get("-np")
        helps = found is not None and found.served is not None
        held = 1 if helps or self.given_slots == 1 else self.given_slots
        self._search_context(base, held)

    def _base(self, small: Trial) -> Base:
        """As given, with the caches off where their worst case alone would break the capacity."""
        command, off = self.case.command, caches_off(self.case.command)
        caches = host_caches(
            command, n_slots=self.given_slots, per_checkpoint=small.checkpoint_bytes
        ).most
        capacity = self.host_account.capacity
        if off is not None and (caches is None or (capacity is not None and caches > capacity / 4)):
            command = off.apply(command)
        return Base(command, self._env)

    def _search_slots(self, base: Base) -> None:
        tokens = self.given_tokens
        search = Search(1, self.given_slots)
        points = [Point(n, tokens, self.unified) for n in range(1, self.given_slots + 1)]

        def command(count: int) -> Command:
            change = to_slots(count, unified=self.unified, command=base.command)
            pinned = base.command
            if base.command.value("-c") is None:
                pinned = to_context(tokens).apply(pinned)
            return change.apply(pinned)

        self._search("-np", search, points, command, base, held={"-c": tokens})

    def _search_context(self, base: Base, held_slots: int) -> None:
        step = context_step(held_slots, unified=self.unified)
        model = self.case.baseline.model
        top = max(self.given_tokens, (model.n_ctx_train or 0) if model else 0)
        top = max(step, top // step * step)
        spent = len(self.boundaries["-np"].trials) if "-np" in self.boundaries else 0
        search = Search(step, top, step, soft=max(SOFT_LAUNCHES, 2 * SOFT_LAUNCHES - spent))
        points = [Point(held_slots, t, self.unified) for t in range(step, top + 1, step)]
        pinned = base.command
        if held_slots != self.given_slots or pinned.value("-np") is None:
            pinned = to_slots(held_slots, unified=self.unified, command=pinned).apply(pinned)
        self._search(
            "-c",
            search,
            points,
            lambda tokens: to_context(tokens).apply(pinned),
            base,
            held={"-np": held_slots},
        )

    def _search(
        self,
        flag: str,
        search: Search,
        points: list[Point],
        command: Callable[[int], Command],
        base: Base,
        held: dict[str, Any],
    ) -> None:
        held = {**held, **self._held_beside(base)}
        seen: list[tuple[int, Trial]] = []

        def expected(*, serving: bool) -> int | None:
            count = self._fitting(points, serving=serving)
            return None if count is None else search.low + (count - 1) * search.step

        copy = self._weightless_copy()
        while (value := search.next(expected(serving=True), expected(serving=False))) is not None:
            tried = command(value) if copy is None else command(value).with_value("-m", str(copy))
            trial = self._trial(why(flag, value, search), tried, base.env)
            if not trial.valid:
                self.notes.append(f"{flag} {value}: {trial.why_invalid}; proves nothing")
                return
            seen.append((value, trial))
            search.observe(value, trial.outcome)
            self.boundaries[flag] = boundary_of(search, seen, held)
            self.case.save(self.result)
        if copy is not None:
            self._confirm(flag, command, base)

    def _weightless_copy(self) -> Path | None:
        """A copy of the model to search with, where the real one is too slow for --max-time."""
        case, small = self.case, self.trials[0]
        if case.weightless is None or case.max_time is None:
            return None
        if small.seconds * TYPICAL_LAUNCHES <= case.max_time:
            return None
        if self._copy is None:
            self._copy = case.weightless()
            self.notes.append(
                "boundaries were searched on a copy of the model without weights, to stay within"
                " --max-time, and confirmed by two runs of the real one"
            )
        return self._copy

    def _confirm(self, flag: str, command: Callable[[int], Command], base: Base) -> None:
        """Two real runs: what served must serve, what failed must fail. Else nothing is claimed."""
        edge = self.boundaries[flag]
        runs: list[Trial] = []
        for value, wanted in (
            (edge.served, TrialOutcome.SERVED),
            (edge.fails, TrialOutcome.FAILED),
        ):
            if value is None:
                continue
            runs.append(
                self._trial(f"{flag} {value}: confirmed with weights", command(value), base.env)
            )
            if runs[-1].outcome is not wanted:
                gone = {"served": None} if wanted is TrialOutcome.SERVED else {"fails": None}
                edge = msgspec.structs.replace(edge, note="not confirmed with weights", **gone)
        trials = (*edge.trials, *(t.n for t in runs))
        self.boundaries[flag] = msgspec.structs.replace(edge, trials=trials)

    def _held_beside(self, base: Base) -> dict[str, Any]:
        held: dict[str, Any] = {
            flag: after for flag, (_, after) in difference(self.case.command, base.command).items()
        }
        held.update(base.env)
        return held

    # ---- remedies and the recommendation ---------------------------------------------------

    def _placement(self) -> None:
        """Even the smallest start fails: is it the device?"""
        devices = self.case.baseline.devices
        if devices and self.case.command.value("-ngl") != "0":
            command = self.case.command.with_value("-ngl", "0").with_value("-np", "1")
            command = command.with_value("-c", str(SMALL_CONTEXT))
            self._trial("placement: nothing on the devices", command, self._env)
        self.notes.append(
            "even one slot with a short context fails: look at placement (devices that are visible,"
            " layers on them, what else holds their memory) and at the model file"
        )

    def _recommend_as_given(self, given: Trial) -> None:
        """It serves; but would it once its caches are full?"""
        account = self.host_account
        command, worst = self.case.command, self._worst_case(given, self.case.command)
        if worst.fits is False and account.capacity is not None:
            slots_ = given.effective.n_seq_max or self.given_slots
            caches = host_caches(command, n_slots=slots_, per_checkpoint=given.checkpoint_bytes)
            room = account.capacity - self._margin() - (account.used_when_ready(given) or 0)
            change = caches_bounded(command, caches, max(0, room), slots_)
            if change is not None:
                self.notes.append(
                    "the command as given serves, but its caches may grow beyond what there is"
                )
                self._prove(Candidate(change.apply(command), {}, ((change.title, change.cost),)))
                return
        self.recommendation = self._proved(Candidate(command, {}, ()), given)

    def _recommend(self, failure: Failure) -> None:
        """The first candidate, cheapest first, that serves its load."""
        for candidate in self._candidates(failure):
            if self._prove(candidate):
                return
        self.notes.append("no change that was tried made the server serve its load")

    def _prove(self, candidate: Candidate) -> bool:
        trial = self._trial(
            "verification of the recommendation",
            candidate.command,
            candidate.env,
            workload=self._load(self.case.verify_requests),
        )
        if trial.outcome is not TrialOutcome.SERVED or not trial.valid:
            return False
        self.recommendation = self._proved(candidate, trial)
        return True

    def _candidates(self, failure: Failure) -> Iterator[Candidate]:
        """Commands worth proving: single changes, cheapest first, then slots, then context."""
        base = self._base(self.trials[0])
        beside: list[tuple[str, Cost]] = []
        if base.command is not self.case.command:
            beside.append(("no prompt cache, no checkpoints", Cost.PROMPT_REUSE))
        if base.env:
            beside.append((ARENAS.title, ARENAS.cost))
        sized = self._depends_on_size(failure)
        by_slots, by_context = self.boundaries.get("-np"), self.boundaries.get("-c")
        if sized and by_slots is not None and by_slots.served == self.given_slots:
            yield Candidate(base.command, base.env, tuple(beside))
        n_ubatch = self.case.command.number("-ub") or 512
        for change in remedies(failure, self.case.command, n_ubatch=n_ubatch):
            if not sized:
                command = change.apply(self.case.command)
                yield Candidate(command, {}, ((change.title, change.cost),))
            elif change.cost is not Cost.PROMPT_REUSE and self._may_fit(change):
                command = change.apply(base.command)
                yield Candidate(command, base.env, ((change.title, change.cost), *beside))
        if not sized:
            return
        if by_slots is not None and by_slots.served is not None:
            for count in self._safe_slots(by_slots.served):
                command = to_slots(count, unified=self.unified, command=base.command).apply(
                    base.command
                )
                fewer = (f"slots {self.given_slots} → {count}", Cost.CONCURRENCY)
                yield Candidate(command, base.env, (fewer, *beside))
        elif by_context is not None and by_context.served is not None:
            held = int(by_context.held.get("-np", 1))
            tokens = self._safe_context(by_context.served, held)
            command = to_context(tokens).apply(base.command)
            changes = []
            if tokens != self.given_tokens:
                changes.append((f"context {self.given_tokens} → {tokens}", Cost.CONTEXT))
            if held != self.given_slots:
                command = to_slots(held, unified=self.unified, command=command).apply(command)
                changes.append((f"slots {self.given_slots} → {held}", Cost.CONCURRENCY))
            yield Candidate(command, base.env, (*changes, *beside))

    def _may_fit(self, change: Change) -> bool:
        """Whether a change is worth a launch: by the sizes, where they can be said."""
        tokens = change.settings.get("-ub")
        if tokens is None:
            return True
        point = replace(self.given_point, n_ubatch=int(tokens))
        fits = self._fitting([point], self._margin())
        return fits is None or fits > 0

    def _margin(self) -> int:
        capacity = self.account.capacity or 0
        return max(64 << 20, capacity // 32)

    def _safe_slots(self, served: int) -> list[int]:
        """Slot counts to recommend: the largest with a margin, then half of it."""
        points = [Point(n, self.given_tokens, self.unified) for n in range(1, served + 1)]
        best = self._fitting(points, self._margin())
        best = max(1, served // 2 if best is None else best)
        if best > 8:
            best -= best % 4
        return sorted({best, max(1, best // 2)}, reverse=True)

    def _safe_context(self, served: int, held: int) -> int:
        """The largest context with a margin, in whole steps."""
        step = context_step(held, unified=self.unified)
        points = [Point(held, tokens, self.unified) for tokens in range(step, served + 1, step)]
        fit = self._fitting(points, self._margin())
        best = served if fit is None else max(1, fit) * step
        best = min(best, self.given_tokens)
        return best - best % 1024 if best > 4096 and step <= 1024 else best

    def _worst_case(self, trial: Trial, command: Command) -> WorstCase:
        """All checkpoints taken and the prompt cache full, on top of what the trial used."""
        ready = self.host_account.used_when_ready(trial)
        peak = self.host_account.used(trial)
        checkpoint = trial.checkpoint_bytes or self._checkpoint_bytes()
        caches = host_caches(
            command,
            n_slots=trial.effective.n_seq_max or self.given_slots,
            per_checkpoint=checkpoint,
        ).most
        capacity = self.host_account.capacity
        if peak is None or caches is None:
            return WorstCase(
                planned=None, limit=capacity, fits=None if caches is not None else False
            )
        planned = max(peak, (ready or 0) + caches) if caches else peak
        return WorstCase(
            planned=planned,
            limit=capacity,
            fits=None if capacity is None else planned <= capacity,
        )

    def _checkpoint_bytes(self) -> int | None:
        return next((t.checkpoint_bytes for t in self.trials if t.checkpoint_bytes), None)

    def _proved(self, candidate: Candidate, trial: Trial) -> Recommendation:
        shown = bool(trial.steps) and all(step.shown_by for step in trial.steps)
        return Recommendation(
            argv=candidate.command.safe_argv(),
            env=dict(candidate.env),
            changes=tuple(title for title, _ in candidate.changes),
            costs=tuple(cost for _, cost in candidate.changes),
            verified=trial.outcome is TrialOutcome.SERVED and shown,
            skipped=trial.skipped,
            worst_case=self._worst_case(trial, candidate.command),
            trial=trial.n,
            requests=trial.requests,
            headroom=trial.headroom,
            steps=trial.steps,
        )


def _step(purpose: str, attempt: int) -> tuple[str, str]:
    """What is tried and why, for whoever watches."""
    text, _, why = purpose.partition(": ")
    return text, why if attempt == 1 else "once more: something else had moved"
