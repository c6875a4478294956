"""Where slots and context stop working: searched with the real model, or with a copy of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from arriero.base.words import TrialOutcome
from arriero.command import Command
from arriero.experiment.diagnosis.evidence import boundary_of, difference, why
from arriero.experiment.diagnosis.problem import Base, Problem
from arriero.experiment.diagnosis.protocols import Point, Runner
from arriero.experiment.diagnosis.record import Record
from arriero.experiment.diagnosis.search import SOFT_LAUNCHES, Search
from arriero.experiment.diagnosis.sizing import Sizing
from arriero.experiment.diagnosis.trials import Trials
from arriero.launch.context import context_step
from arriero.launch.edits import with_context, with_slots
from arriero.record import Trial

TYPICAL_LAUNCHES: Final = 9
"""Small, as given, three around the edge of slots, three around that of context, the proof."""


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

    @property
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
        if pinned.value("-c") is None:
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
        )

    def _context(self, base: Base, slots: int) -> Line:
        unified = self._sizing.unified
        step = context_step(slots, unified=unified)
        top = max(self._sizing.tokens, self._sizing.trained)
        spent = len(self._record.boundaries["-np"].trials) if self._record.boundaries else 0
        pinned = base.command
        if slots != self._sizing.slots or pinned.value("-np") is None:
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
        )

    def _beside(self, base: Base) -> dict[str, Any]:
        """What is held beside the other variable: flags that differ from the command as given."""
        moved = difference(self._problem.command, base.command)
        return {**{flag: after for flag, (_, after) in moved.items()}, **base.env}

    def _search(self, line: Line, base: Base) -> None:
        search = Search(line.low, line.high, line.step, soft=line.soft)
        seen: list[tuple[int, Trial]] = []
        copy = self._weightless_copy()
        while (value := self._next(search, line)) is not None:
            command = line.command(value)
            if copy is not None:
                command = command.with_value("-m", str(copy))
            trial = self._trials.run(why(line.flag, value, search), command, base.env)
            if not trial.valid:
                self._record.notes.append(
                    f"{line.flag} {value}: {trial.why_invalid}; proves nothing"
                )
                return
            seen.append((value, trial))
            search.observe(value, trial.outcome)
            self._record.boundaries[line.flag] = boundary_of(search, seen, dict(line.held))
            self._trials.save()
        if copy is not None:
            self._confirm(line, base)

    def _next(self, search: Search, line: Line) -> int | None:
        points = line.points

        def expected(*, serving: bool) -> int | None:
            count = self._sizing.fitting(points, serving=serving)
            return None if count is None else line.low + (count - 1) * line.step

        return search.next(expected(serving=True), expected(serving=False))

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
                    "boundaries were searched on a copy of the model without weights, to stay"
                    " within --max-time, and confirmed by two runs of the real one"
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
                edge = msgspec.structs.replace(edge, note="not confirmed with weights", **gone)
        trials = (*edge.trials, *(trial.n for trial in runs))
        self._record.boundaries[line.flag] = msgspec.structs.replace(edge, trials=trials)
