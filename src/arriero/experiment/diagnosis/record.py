"""The record of a diagnosis while it grows: valid at any moment, also after an exception."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from arriero.base.words import TrialOutcome
from arriero.command import Command
from arriero.experiment.diagnosis.evidence import verdict_of
from arriero.experiment.diagnosis.problem import Problem
from arriero.experiment.diagnosis.slopes import slopes
from arriero.logs.model import Failure
from arriero.record import Boundary, Diagnosis, Recommendation, Trial, Verdict


@dataclass(frozen=True)
class Tried:
    """A trial, and the command, environment and least number of requests that it was run with."""

    trial: Trial
    command: Command
    env: Mapping[str, str]
    requests: int

    @cached_property
    def settings(self) -> dict[str, str]:
        """What was in force for each flag."""
        return self.command.effective()


@dataclass
class Record:
    """What was tried so far, and what it showed."""

    problem: Problem
    tried: list[Tried] = field(default_factory=list)
    launches: int = 0
    small: Trial | None = None
    """The baseline, once it has run."""
    verdict: Verdict | None = None
    boundaries: dict[str, Boundary] = field(default_factory=dict)
    recommendation: Recommendation | None = None
    not_tried: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    complete: bool = False
    interrupted: bool = False
    seconds: float = 0.0

    @property
    def trials(self) -> list[Trial]:
        return [tried.trial for tried in self.tried]

    @property
    def as_given(self) -> list[Trial]:
        """Trials of the command as given."""
        return [trial for trial in self.trials if not trial.change]

    @property
    def latest_served(self) -> Trial | None:
        """The last valid trial beside the baseline that served."""
        good = (t for t in self.trials if t.valid and t is not self.small)
        return next((t for t in reversed([*good]) if t.outcome is TrialOutcome.SERVED), None)

    def runs_of(self, command: Command, env: Mapping[str, str]) -> list[Tried]:
        """Valid trials of exactly this command in this environment, whatever they were for."""
        settings, same = command.effective(), dict(env)
        return [
            tried
            for tried in self.tried
            if tried.trial.valid and dict(tried.env) == same and tried.settings == settings
        ]

    @property
    def failure(self) -> Failure | None:
        return self.verdict.failure if self.verdict else None

    def blame(self, failure: Failure, trial: int | None) -> None:
        """Make this failure the verdict."""
        self.verdict = verdict_of(failure, trial)

    @property
    def result(self) -> Diagnosis:
        return Diagnosis(
            id=self.problem.id,
            baseline=self.problem.baseline,
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
            seconds=round(self.seconds, 2),
        )
