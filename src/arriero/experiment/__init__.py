"""Many trials with one aim: a boundary, a verification."""

from arriero.experiment.case import Case, Point, Sizes
from arriero.experiment.diagnose import TYPICAL_LAUNCHES, Diagnoser
from arriero.experiment.oracle import PlannedSizes, Planner
from arriero.experiment.search import Search, bisection_launches

__all__ = [
    "TYPICAL_LAUNCHES",
    "Case",
    "Diagnoser",
    "PlannedSizes",
    "Planner",
    "Point",
    "Search",
    "Sizes",
    "bisection_launches",
]
