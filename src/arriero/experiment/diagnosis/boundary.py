"""Where slots and context stop working: searched with the real model, or with a copy of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import msgspec

from arriero.base.words import TrialOutcome
from arriero.command import Command
from arriero.experiment.diagnosis.evidence import boundary_of, difference
from arriero.experiment.diagnosis.problem import Base, Problem
from arriero.experiment.diagnosis.protocols import Point, Runner
from arriero.experiment.diagnosis.record import Record
from arriero.experiment.diagnosis.search import SOFT_LAUNCHES, Search
from arriero.experiment.diagnosis.sizing import Sizing
from arriero.experiment.diagnosis.trials import Trials
from arriero.launch.context import asked_context, context_step
from arriero.launch.edits import with_context, with_slots
from arriero.launch.slots import slots_of
from arriero.record import Trial

TYPICAL_LAUNCHES: Final = 7
"""Small, as given, two around the edge of slots, two around that of context, the proof."""


@dataclass(frozen=True)
class Line:
    """One variable with everything else held: what ``flag`` may be, and the commands for it."""

    flag: str
    low: int
    high: int
    step: int
    soft: int
    point: Callable[[int], Point]
    command: Callable[[int], Command]
    held: Mapping[str, Any]
    may_prove: Callable[[int], bool]
    """Whether a value would be recommended if it served: then it is asked for that load at once."""

    def has(self, value: int) -> bool:
        return self.low <= value <= self.high and (value - self.low) % self.step == 0

    @cached_property
    def points(self) -> Sequence[Point]:
        return [self.point(value) for value in range(self.low, self.high + 1, self.step)]


class Boundaries:
    """Finds the boundaries of one diagnosis."""

    def __init__(
        self, problem: Problem, runner: Runner, sizing: Sizing, trials: Trials, record: Record
    ) -> None:
        self._problem, self._runner = problem, runner
        self._sizing, self._trials, self._record = sizing, trials, record
        self._copy: Path | None = None

    def find(self, base: Base) -> None:
        """Slots first, then context: for one slot, if fewer slots help."""
        slots = self._sizing.slots
        if slots > 1:
            self._search(self._slots(base), base)
        found = self._record.boundaries.get("-np")
        helps = found is not None and found.served is not None
        self._search(self._context(base, 1 if helps else slots), base)

    def _slots(self, base: Base) -> Line:
        tokens, unified = self._sizing.tokens, self._sizing.unified
        pinned = base.command
        if asked_context(pinned).tokens is None:
            pinned = with_context(pinned, tokens)
        return Line(
            flag="-np",
            low=1,
            high=self._sizing.slots,
            step=1,
            soft=SOFT_LAUNCHES,
            point=lambda count: Point(count, tokens, unified),
            command=lambda count: with_slots(pinned, count, unified=unified),
            held={"-c": tokens, **self._beside(base)},
            may_prove=self._is_safe_count,
        )

    def _context(self, base: Base, slots: int) -> Line:
        unified = self._sizing.unified
        step = context_step(slots, unified=unified)
        top = max(self._sizing.tokens, self._sizing.trained)
        spent = len(self._record.boundaries["-np"].trials) if self._record.boundaries else 0
        pinned = base.command
        if slots != self._sizing.slots or not slots_of(pinned).given:
            pinned = with_slots(pinned, slots, unified=unified)
        return Line(
            flag="-c",
            low=step,
            high=max(step, top // step * step),
            step=step,
            soft=max(SOFT_LAUNCHES, 2 * SOFT_LAUNCHES - spent),
            point=lambda tokens: Point(slots, tokens, unified),
            command=lambda tokens: with_context(pinned, tokens),
            held={"-np": slots, **self._beside(base)},
            may_prove=lambda tokens: self._is_safe_context(tokens, slots),
        )

    def _is_safe_count(self, count: int) -> bool:
        return count == self._sizing.slots or self._sizing.safe_slots(count)[0] == count

    def _is_safe_context(self, tokens: int, slots: int) -> bool:
        """Whether this context would be recommended, which it is where no count of slots served."""
        by_slots = self._record.boundaries.get("-np")
        if by_slots is not None and by_slots.served is not None:
            return False
        return self._sizing.safe_context(tokens, slots) == tokens

    def _beside(self, base: Base) -> dict[str, Any]:
        """What is held beside the other variable: flags that differ from the command as given."""
        moved = difference(self._problem.command, base.command)
        return {**{flag: after for flag, (_, after) in moved.items()}, **base.env}

    def _search(self, line: Line, base: Base) -> None:
        search = Search(line.low, line.high, line.step, soft=line.soft)
        copy = self._weightless_copy()
        seen = [] if copy is not None else self._known(search, line, base)
        while (value := self._next(search, line)) is not None:
            command, requests = line.command(value), 0
            if copy is not None:
                command = command.with_value("-m", str(copy))
            again = bool(self._record.runs_of(command, base.env))
            if copy is None and not again and line.may_prove(value):
                requests = self._problem.verify_requests
            purpose = f"{line.flag} {value}{' once more' if again else ''}: {search.reason}"
            trial = self._trials.run(purpose, command, base.env, requests=requests)
            if not trial.valid:
                self._record.notes.append(
                    f"{line.flag} {value} does not count: {trial.why_invalid}"
                )
                return
            if requests and trial.outcome is TrialOutcome.READY:
                continue  # it may still serve the standard load, which boundaries are about
            seen.append((value, trial))
            search.observe(value, trial.outcome, clear=self._sizing.clear(trial))
            self._record.boundaries[line.flag] = boundary_of(search, seen, dict(line.held))
            self._trials.save()
        if seen:
            self._record.boundaries[line.flag] = boundary_of(search, seen, dict(line.held))
        if copy is not None:
            self._confirm(line, base)

    def _known(self, search: Search, line: Line, base: Base) -> list[tuple[int, Trial]]:
        """What earlier trials showed: those that differ in the one variable and in nothing else.

        A start that failed would have failed before any load, and what served more requests has
        served these; a longer load that broke says nothing of the standard one.
        """
        found: list[tuple[int, Trial]] = []
        for value in sorted({t.command.number(line.flag) or 0 for t in self._record.tried}):
            if not line.has(value):
                continue
            for run in self._record.runs_of(line.command(value), base.env):
                if run.requests and run.trial.outcome is TrialOutcome.READY:
                    continue
                found.append((value, run.trial))
                clear = self._sizing.clear(run.trial)
                search.know(value, run.trial.outcome, clear=clear)
        return found

    def _next(self, search: Search, line: Line) -> int | None:
        points = line.points

        def value(count: int | None) -> int | None:
            return None if count is None else line.low + (count - 1) * line.step

        serves = self._sizing.fitting(points)
        starts = self._sizing.fitting(points, serving=False)
        grain, differs = self._sizing.grain(points, serves or 0)
        if grain > 1:  # runs may end either way at the edge itself: aim where one run is enough
            serves = self._sizing.fitting(points, differs * 5 // 4)
        return search.next(value(serves), value(starts), grain)

    # ---- a copy without weights ------------------------------------------------------------

    def _weightless_copy(self) -> Path | None:
        """A copy of the model to search with, where the real one is too slow for --max-time."""
        small, limit = self._record.small, self._problem.max_time
        if limit is None or small is None or small.seconds * TYPICAL_LAUNCHES <= limit:
            return None
        if self._copy is None:
            self._copy = self._runner.weightless()
            if self._copy is not None:
                self._record.notes.append(
                    "boundaries were searched with a copy of the model without weights, to keep"
                    " to --max-time, and confirmed by two runs of the model itself"
                )
        return self._copy

    def _confirm(self, line: Line, base: Base) -> None:
        """Two real runs: what served must serve, what failed must fail. Else nothing is claimed."""
        edge = self._record.boundaries[line.flag]
        runs: list[Trial] = []
        for value, wanted in (
            (edge.served, TrialOutcome.SERVED),
            (edge.fails, TrialOutcome.FAILED),
        ):
            if value is None:
                continue
            purpose = f"{line.flag} {value}: confirmed with weights"
            runs.append(self._trials.run(purpose, line.command(value), base.env))
            if runs[-1].outcome is not wanted:
                gone = {"served": None} if wanted is TrialOutcome.SERVED else {"fails": None}
                edge = msgspec.structs.replace(
                    edge, note="runs of the model itself did not confirm it", **gone
                )
        trials = (*edge.trials, *(trial.n for trial in runs))
        self._record.boundaries[line.flag] = msgspec.structs.replace(edge, trials=trials)
