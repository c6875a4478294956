"""Many trials with one aim: a boundary, a verification."""

from arriero.experiment.diagnosis.case import Case, Point, Sizes
from arriero.experiment.diagnosis.procedure import TYPICAL_LAUNCHES, Diagnoser
from arriero.experiment.diagnosis.search import Search, bisection_launches
from arriero.experiment.oracle import PlannedSizes, plan_of

__all__ = [
    "TYPICAL_LAUNCHES",
    "Case",
    "Diagnoser",
    "PlannedSizes",
    "Point",
    "Search",
    "Sizes",
    "bisection_launches",
    "plan_of",
]
