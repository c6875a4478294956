"""One run of the engine: start, load, watch, end, record."""

from arriero.trial.load import LoadResult, Workload, run_load
from arriero.trial.run import (
    Bench,
    Patience,
    TrialSpec,
    describe_status,
    prepare,
    run_trial,
)

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
