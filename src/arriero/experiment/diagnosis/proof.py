"""What to run instead: candidates, cheapest first, and the trial that proves one of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from arriero.advice import Change, caches_bounded, host_caches, remedies
from arriero.base.words import Cost, TrialOutcome
from arriero.command import Command
from arriero.experiment.diagnosis.problem import Base, Problem
from arriero.experiment.diagnosis.record import Record
from arriero.experiment.diagnosis.sizing import Sizing
from arriero.experiment.diagnosis.trials import Trials
from arriero.launch import launch_of
from arriero.launch.edits import with_context, with_slots
from arriero.logs.model import Failure
from arriero.record import Boundary, Recommendation, Trial, WorstCase


@dataclass(frozen=True)
class Candidate:
    """A command to prove, with what it changes and what that costs."""

    command: Command
    env: Mapping[str, str]
    changes: tuple[tuple[str, Cost], ...]


class Proof:
    """Finds the recommendation of one diagnosis: no command is recommended that did not run."""

    def __init__(self, problem: Problem, sizing: Sizing, trials: Trials, record: Record) -> None:
        self._problem, self._sizing = problem, sizing
        self._trials, self._record = trials, record

    def recommend(self, failure: Failure, base: Base, *, sized: bool) -> None:
        """The first candidate that serves its load.

        Args:
            sized: Whether the failure is about memory that slots and context take.
        """
        found = self._sized(failure, base) if sized else self._unsized(failure)
        for candidate in found:
            if self._prove(candidate):
                return
        self._record.notes.append(
            "with none of the changes that were tried did the server get through its load"
        )

    def recommend_as_given(self, given: Trial) -> None:
        """It serves; but would it once its caches are full?"""
        command = self._problem.command
        bounded = self._bounded(given) if self._worst_case(given, command).fits is False else None
        if bounded is None:
            self._record.recommendation = self._proved(Candidate(command, {}, ()), given)
            return
        self._record.notes.append(
            "the command as given serves, but its caches can grow beyond the memory there is"
        )
        self._prove(Candidate(bounded.apply(command), {}, ((bounded.title, bounded.cost),)))

    # ---- candidates ------------------------------------------------------------------------

    def _unsized(self, failure: Failure) -> Iterator[Candidate]:
        """Single changes to the command as given."""
        for change in self._remedies(failure):
            command = change.apply(self._problem.command)
            yield Candidate(command, {}, ((change.title, change.cost),))

    def _sized(self, failure: Failure, base: Base) -> Iterator[Candidate]:
        """The base, single changes to it, then fewer slots or a shorter context."""
        by_slots = self._record.boundaries.get("-np")
        by_context = self._record.boundaries.get("-c")
        served = by_slots.served if by_slots is not None else None
        if served == self._sizing.slots:
            yield Candidate(base.command, base.env, base.beside)
        for change in self._remedies(failure):
            if change.cost is not Cost.PROMPT_REUSE and self._may_fit(change):
                changes = ((change.title, change.cost), *base.beside)
                yield Candidate(change.apply(base.command), base.env, changes)
        if served is not None:
            yield from self._fewer_slots(base, served)
        elif by_context is not None and by_context.served is not None:
            yield self._shorter(base, by_context, by_context.served)

    def _fewer_slots(self, base: Base, served: int) -> Iterator[Candidate]:
        for count in self._sizing.safe_slots(served):
            command = with_slots(base.command, count, unified=self._sizing.unified)
            fewer = (f"slots {self._sizing.slots} → {count}", Cost.CONCURRENCY)
            yield Candidate(command, base.env, (fewer, *base.beside))

    def _shorter(self, base: Base, edge: Boundary, served: int) -> Candidate:
        held = int(edge.held.get("-np", 1))
        tokens = self._sizing.safe_context(served, held)
        command = with_context(base.command, tokens)
        changes: list[tuple[str, Cost]] = []
        if tokens != self._sizing.tokens:
            changes.append((f"context {self._sizing.tokens} → {tokens}", Cost.CONTEXT))
        if held != self._sizing.slots:
            command = with_slots(command, held, unified=self._sizing.unified)
            changes.append((f"slots {self._sizing.slots} → {held}", Cost.CONCURRENCY))
        return Candidate(command, base.env, (*changes, *base.beside))

    def _remedies(self, failure: Failure) -> tuple[Change, ...]:
        command = self._problem.command
        return remedies(failure, command, n_ubatch=launch_of(command).params.n_ubatch)

    def _may_fit(self, change: Change) -> bool:
        tokens = change.settings.get("-ub")
        return tokens is None or self._sizing.may_fit(int(tokens))

    def _bounded(self, given: Trial) -> Change | None:
        """Caches that stay within what the trial of the command as given left free."""
        account = self._sizing.host_account
        if account.capacity is None:
            return None
        slots = given.effective.n_seq_max or self._sizing.slots
        command = self._problem.command
        caches = host_caches(command, n_slots=slots, per_checkpoint=given.checkpoint_bytes)
        room = account.capacity - self._sizing.margin - (account.used_when_ready(given) or 0)
        return caches_bounded(command, caches, max(0, room), slots)

    # ---- the proof -------------------------------------------------------------------------

    def _prove(self, candidate: Candidate) -> bool:
        """Whether the candidate serves its load: in a trial of the search, or in one of its own."""
        trial = self._shown(candidate) or self._trials.run(
            "verification of the recommendation",
            candidate.command,
            candidate.env,
            requests=self._problem.verify_requests,
        )
        if trial.outcome is not TrialOutcome.SERVED or not trial.valid:
            return False
        self._record.recommendation = self._proved(candidate, trial)
        return True

    def _shown(self, candidate: Candidate) -> Trial | None:
        """A trial of exactly this command that was asked for as many requests."""
        runs = self._record.runs_of(candidate.command, candidate.env)
        asked = self._problem.verify_requests
        return next((run.trial for run in reversed(runs) if run.requests >= asked), None)

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

    def _worst_case(self, trial: Trial, command: Command) -> WorstCase:
        """All checkpoints taken and the prompt cache full, on top of what the trial used."""
        account = self._sizing.host_account
        ready, peak = account.used_when_ready(trial), account.used(trial)
        seen = (t.checkpoint_bytes for t in (trial, *self._record.trials))
        caches = host_caches(
            command,
            n_slots=trial.effective.n_seq_max or self._sizing.slots,
            per_checkpoint=next((size for size in seen if size), None),
        ).most
        if peak is None or caches is None:
            fits = False if caches is None else None
            return WorstCase(planned=None, limit=account.capacity, fits=fits)
        planned = max(peak, (ready or 0) + caches) if caches else peak
        fits = None if account.capacity is None else planned <= account.capacity
        return WorstCase(planned=planned, limit=account.capacity, fits=fits)
