"""Reproductions of gotchas: the run that must show it and the control that must not."""

from arriero.experiment.reproduction.judging import matches
from arriero.experiment.reproduction.lab import Lab

__all__ = ["Lab", "matches"]
