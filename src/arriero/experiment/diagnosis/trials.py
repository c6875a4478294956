"""One launch after the other, while there are launches and time left."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from arriero.base.words import Evidence, Kind, TrialOutcome
from arriero.command import Command
from arriero.experiment.diagnosis.evidence import difference, what_moved, with_component
from arriero.experiment.diagnosis.problem import Problem
from arriero.experiment.diagnosis.protocols import Forecast, Reporter, Runner
from arriero.experiment.diagnosis.record import Record, Tried
from arriero.launch.placement import layers_given
from arriero.logs.model import Failure
from arriero.record import Trial
from arriero.trial import TrialSpec, Workload


class OutOfBudgetError(Exception):
    """No launch or no time is left; what was found so far stands."""


class Trials:
    """Runs trials of one diagnosis, and enters each into its record."""

    def __init__(
        self,
        problem: Problem,
        runner: Runner,
        forecast: Forecast,
        reporter: Reporter,
        record: Record,
    ) -> None:
        self._problem, self._runner, self._forecast = problem, runner, forecast
        self._reporter, self._record = reporter, record
        self._started = runner.now()
        self._unsaved = False

    def run(
        self, purpose: str, command: Command, env: Mapping[str, str], *, requests: int = 0
    ) -> Trial:
        """One launch, and a second if another setting than the variable changed.

        Args:
            requests: How many requests it has to serve at least, beside the standard load.

        Raises:
            OutOfBudgetError: Before the launch, or after one that the end of the time cut off.
        """
        again = self._launch(purpose, command, env, requests, first=True)
        return again if again.valid else self._launch(purpose, command, env, requests, first=False)

    def named(
        self, purpose: str, command: Command, env: Mapping[str, str], *, requests: int = 0
    ) -> Trial:
        """A trial whose failure the log names, if a second one can show it.

        The engine's logger is asynchronous: the line that names the cause may be lost once.
        """
        trial = self.run(purpose, command, env, requests=requests)
        failure = trial.failure
        if failure is None or failure.evidence is Evidence.NAMED or failure.kind is Kind.HANG:
            return trial
        once_more = (
            f"{purpose.partition(':')[0]}: once more, because the log does not name the cause"
        )
        try:
            again = self.run(once_more, command, env, requests=requests)
        except OutOfBudgetError:
            return trial  # what it showed stands; whoever goes on is told the same
        if again.failure is not None and again.failure.evidence is Evidence.NAMED:
            return again
        if again.outcome is TrialOutcome.SERVED:
            self._record.notes.append(
                "the same command failed once and served once: it is at the edge of what fits"
            )
        told = again.failure is not None and again.failure.component is not None
        return again if told and failure.component is None else trial

    def with_component(self, failure: Failure, command: Command) -> Failure:
        """With the component that failed, where the log lost it and other evidence has it."""
        if failure.evidence is Evidence.NAMED:
            return failure
        return with_component(failure, self._record.trials, self._forecast.plan(command, True))

    def save(self) -> None:
        """Give the record, as it is now, to whoever keeps it."""
        self._record.seconds = self._runner.now() - self._started
        problem = self._reporter.save(self._record.result)
        if problem is not None and not self._unsaved:
            self._unsaved = True
            self._record.notes.append(problem)

    # ---- one launch ------------------------------------------------------------------------

    def _launch(
        self, purpose: str, command: Command, env: Mapping[str, str], requests: int, *, first: bool
    ) -> Trial:
        self._check_budget()
        record = self._record
        spec = TrialSpec(
            n=record.launches + 1,
            purpose=purpose,
            command=command,
            change=difference(self._problem.command, command),
            env=env,
            workload=Workload(min_requests=requests),
        )
        record.launches += 1
        step, _, why = purpose.partition(": ")
        again = "once more: another setting had changed in the last run"
        self._reporter.starting(step, why if first else again)
        trial = self._runner.run(spec, self._seconds_left)
        if trial.failure is not None:
            failure = self.with_component(trial.failure, command)
            trial = msgspec.structs.replace(trial, failure=failure)
        hung = trial.failure is not None and trial.failure.kind is Kind.HANG
        cut = hung and self._seconds_left <= 0
        moved = "cut off: --max-time ran out" if cut else self._moved(trial, command)
        if moved:
            trial = msgspec.structs.replace(trial, valid=False, why_invalid=moved)
        record.tried.append(Tried(trial, command, env, requests))
        self.save()
        if cut:
            raise OutOfBudgetError("stopped: --max-time ran out during the last trial")
        if trial.valid:
            self._reporter.tried(command, trial)
        return trial

    def _moved(self, trial: Trial, command: Command) -> str | None:
        return what_moved(trial, command, self._layers_before(command)) or self._runner.settle()

    def _layers_before(self, command: Command) -> int | None:
        """Layers that the baseline offloaded, where this command asks for the same."""
        small = self._record.small
        if small is None or small.outcome is TrialOutcome.FAILED:
            return None
        same = layers_given(command) == layers_given(self._problem.command)
        return small.effective.n_gpu_layers if same else None

    # ---- what is left to spend -------------------------------------------------------------

    @property
    def _seconds_left(self) -> float:
        limit = self._problem.max_time
        return math.inf if limit is None else limit - (self._runner.now() - self._started)

    def _check_budget(self) -> None:
        if self._record.launches >= self._problem.max_launches:
            raise OutOfBudgetError(
                f"stopped after {self._record.launches} launches: --max-launches allows no more"
            )
        typical = max((trial.seconds for trial in self._record.trials), default=0.0)
        if self._seconds_left <= typical:
            spent = self._runner.now() - self._started
            raise OutOfBudgetError(
                f"stopped after {spent:.0f} s: --max-time leaves no room for another launch"
            )
