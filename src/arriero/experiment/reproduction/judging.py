"""What a run showed, and what a run and its control come to."""

from __future__ import annotations

import re
from typing import Literal

from arriero.base.words import TrialOutcome
from arriero.gotchas.model import Reproduction, Signature
from arriero.gotchas.verdicts import COULD_NOT_RUN, NOT_REPRODUCED, REPRODUCED
from arriero.record import RunEvidence, Trial
from arriero.trial import describe_status


def matches(shows: Signature, trial: Trial, log: str) -> tuple[bool, str]:
    """Whether a trial shows a signature, and the line or the value that does."""
    failure = trial.failure
    text = failure.text if failure else ""
    if shows.log is not None:
        lines = log.splitlines()
        if trial.exit_status is not None:
            lines.append(f"ended with {describe_status(trial.exit_status)}")
        found = next((line for line in lines if re.search(shows.log, line)), None)
        if found is None:
            return False, ""
        text = found.strip()
    wanted = (
        (shows.outcome, trial.outcome),
        (shows.kind, failure.kind if failure else None),
        (shows.component, failure.component if failure else None),
        (shows.exit_status, trial.exit_status),
    )
    if any(want is not None and want != have for want, have in wanted):
        return False, ""
    for name, want in shows.effective.items():
        if getattr(trial.effective, name) != want:
            return False, ""
        text = text or f"{name} = {want}"
    return True, text


def judge(
    reproduction: Reproduction, run: RunEvidence, control: RunEvidence
) -> tuple[Literal["reproduced", "not reproduced", "could not run"], str]:
    if not run.shows:
        return NOT_REPRODUCED, f"the run {_outcome(run)}"
    if control.shows:
        return NOT_REPRODUCED, "the workaround does not change the outcome"
    if reproduction.control_serves and control.outcome is not TrialOutcome.SERVED:
        return COULD_NOT_RUN, f"the control {_outcome(control)}"
    return REPRODUCED, ""


def _outcome(run: RunEvidence) -> str:
    match run.outcome:
        case TrialOutcome.SERVED:
            return "served every request"
        case TrialOutcome.READY:
            how = "failed a request"
        case TrialOutcome.FAILED:
            how = "did not start"
    end = f" ({describe_status(run.exit_status)})" if run.exit_status is not None else ""
    return f"{how}{end}: {run.text[:200]}"
