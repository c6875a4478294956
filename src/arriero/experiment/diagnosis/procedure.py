"""The procedure: start small, then as given, name the failure, find the boundaries, prove a fix.

One effective variable changes at a time; what else moved makes a trial invalid. Every number in the
result was shown by a trial, and the record is valid at any moment: it is saved after each trial.
"""

from __future__ import annotations

from typing import Final

from arriero.advice import untried
from arriero.base.sizes import human
from arriero.base.words import Component, Kind, TrialOutcome
from arriero.experiment.diagnosis.boundary import Boundaries
from arriero.experiment.diagnosis.problem import Base, Problem, base_of, controlled_env
from arriero.experiment.diagnosis.proof import Proof
from arriero.experiment.diagnosis.protocols import Forecast, NoForecast, Reporter, Runner
from arriero.experiment.diagnosis.record import Record
from arriero.experiment.diagnosis.sizing import MEMORY_KINDS, SMALL_CONTEXT, Sizing
from arriero.experiment.diagnosis.trials import OutOfBudgetError, Trials
from arriero.launch.context import asked_context
from arriero.launch.edits import with_settings
from arriero.launch.placement import layers
from arriero.logs.model import Failure
from arriero.machine.cpu import INSTEAD
from arriero.record import Diagnosis, Trial

_HOPELESS: Final = frozenset({Kind.CONFIG, Kind.MODEL, Kind.ENVIRONMENT})
"""Kinds that no amount of memory changes: further launches would show the same."""


def run_diagnosis(
    problem: Problem,
    runner: Runner,
    forecast: Forecast | None = None,
    reporter: Reporter | None = None,
) -> Diagnosis:
    """Go through the procedure; save after every step.

    An interruption, or the end of launches or time, ends it with what was found so far.

    Args:
        forecast: Without one, sizes are those that the trials printed.
    """
    return _Procedure(problem, runner, forecast or NoForecast(), reporter or Reporter()).run()


class _Procedure:
    """The steps of one diagnosis."""

    def __init__(
        self, problem: Problem, runner: Runner, forecast: Forecast, reporter: Reporter
    ) -> None:
        record = Record(problem)
        self.problem, self.runner, self.record = problem, runner, record
        self.trials = Trials(problem, runner, forecast, reporter, record)
        self.sizing = Sizing(problem, runner, forecast, record)
        self.boundaries = Boundaries(problem, runner, self.sizing, self.trials, record)
        self.proof = Proof(problem, self.sizing, self.trials, record)

    def run(self) -> Diagnosis:
        try:
            self._steps()
        except OutOfBudgetError as why:
            self.record.notes.append(str(why))
        except KeyboardInterrupt:
            self.record.interrupted = True
            self.record.notes.append("interrupted: this record holds what was shown until then")
        else:
            self.record.complete = True
        finally:
            self.trials.save()
        return self.record.result

    def _steps(self) -> None:
        small = self._baseline()
        if small is None:
            return
        if small.failure is not None and small.failure.kind in _HOPELESS:
            self._blame(small)
            return
        given = self._as_given()
        if given is not None and given.outcome is TrialOutcome.SERVED:
            self.proof.recommend_as_given(given)
            return
        if given is not None:
            self._blame(given)
        failure = self.record.failure
        if failure is None or failure.kind in _HOPELESS:
            return
        if small.outcome is TrialOutcome.FAILED:
            self._placement()
            return
        self.record.not_tried += untried(failure, self.problem.command)
        base, sized = self._base(small), self._depends_on_size(failure)
        if sized:
            self.boundaries.find(base)
        self.proof.recommend(failure, base, sized=sized)

    # ---- the small start, and as given -----------------------------------------------------

    def _baseline(self) -> Trial | None:
        """The smallest start that still loads everything; null if even that is too dangerous."""
        given = self.problem.command
        tokens = min(asked_context(given).tokens or SMALL_CONTEXT, SMALL_CONTEXT)
        command = with_settings(given, {"-np": "1", "-c": str(tokens)})
        needed = self.sizing.host_needs(command)
        if self._too_dangerous("even one slot with a short context", needed):
            self._from_log()
            return None
        env = controlled_env(given, self.runner.limit)
        trial = self.trials.named("baseline: one slot, short context", command, env)
        self.record.small = trial
        return trial

    def _as_given(self) -> Trial | None:
        """The command as given; null if its failure is known, or a start is too dangerous."""
        if self._from_log():
            return None
        given = self.problem.command
        needed = self.sizing.total(self.sizing.given)
        if needed is None:
            needed = self.sizing.host_needs(given)
        if self._too_dangerous("the command as given", needed):
            return None
        # A crash on a later request is looked for here, and what serves is thereby verified.
        return self.trials.named("as given", given, {}, requests=self.problem.verify_requests)

    def _from_log(self) -> bool:
        """Take the failure of a log that was given instead of starting the command."""
        failure = self.problem.from_log
        if failure is None:
            return False
        self.record.blame(self.trials.with_component(failure, self.problem.command), None)
        self.record.notes.append(
            "the command as given was not started: its failure was read from the log"
        )
        return True

    def _too_dangerous(self, what: str, needed: int | None) -> bool:
        """Whether a start could take the machine down, and was left out for that."""
        allowed = self.runner.limit is not None or self.problem.as_given
        if allowed or needed is None or self.sizing.host_has_room(needed):
            return False
        self.record.notes.append(
            f"{what} would take about {human(needed)}; this machine has"
            f" {human(self.runner.host_free or 0)} free, and nothing would stop it: set a --limit,"
            " give the log of a failed start (--from-log), or start it all the same (--as-given)"
        )
        self.record.not_tried.append(f"{what} (--as-given starts it all the same)")
        return True

    # ---- the verdict -----------------------------------------------------------------------

    def _blame(self, trial: Trial) -> None:
        if trial.failure is not None:
            self.record.blame(trial.failure, trial.n)
            if trial.failure.cpu is not None:
                self.record.notes.append(INSTEAD)

    def _depends_on_size(self, failure: Failure) -> bool:
        """Whether slots and context matter: memory ran out, it died at the limit, or the start as
        given died where the small one did not."""
        if failure.kind in MEMORY_KINDS or failure.component is Component.GRAPH:
            return True
        last = next((t for t in reversed(self.record.trials) if t.failure is failure), None)
        if last is None or failure.kind not in {Kind.CRASH, Kind.BACKEND}:
            return False
        limit, free = self.runner.limit, self.runner.host_free
        near = limit is not None and last.headroom is not None
        size = min(limit.bytes, free or limit.bytes) if limit else 0
        at_limit = near and (last.headroom or 0) < size // 16
        return at_limit or last.outcome is TrialOutcome.FAILED

    def _base(self, small: Trial) -> Base:
        return base_of(
            self.problem.command,
            self.runner.limit,
            slots=self.sizing.slots,
            checkpoint_bytes=small.checkpoint_bytes,
            capacity=self.sizing.host_account.capacity,
        )

    def _placement(self) -> None:
        """Even the smallest start fails: is it the device?"""
        devices, given = self.problem.baseline.devices, self.problem.command
        if devices and layers(given) != 0:
            small = {"-ngl": "0", "-np": "1", "-c": str(SMALL_CONTEXT)}
            env = controlled_env(given, self.runner.limit)
            self.trials.run("placement: everything on the CPU", with_settings(given, small), env)
        self.record.notes.append(
            "even one slot with a short context fails: check which devices are visible, how many"
            " layers go to them, what else uses their memory, and the model file"
        )
