"""One run of the engine: start, load, watch, end, record."""

from arriero.trial.failure import describe_status
from arriero.trial.load import Workload, run_load
from arriero.trial.replies import LoadResult
from arriero.trial.run import prepare, run_trial
from arriero.trial.spec import Bench, Patience, TrialSpec

__all__ = [
    "Bench",
    "LoadResult",
    "Patience",
    "TrialSpec",
    "Workload",
    "describe_status",
    "prepare",
    "run_load",
    "run_trial",
]
