"""What a diagnosis needs of the world: who runs trials, who forecasts sizes, who is told.

The procedure knows nothing else of engines, files and screens. Tests put a model of a server in the
place of the engine, and end the time when they like.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from arriero.command import Command
from arriero.launch.context import Context, context
from arriero.process import Limit
from arriero.record import Diagnosis, Plan, Trial
from arriero.trial import TrialSpec


@dataclass(frozen=True, order=True)
class Point:
    """One setting of the two variables that have boundaries, and the micro-batch."""

    slots: int
    tokens: int
    """``-c``: tokens of all slots together."""
    unified: bool = False
    n_ubatch: int | None = None

    @property
    def context(self) -> Context:
        return context(self.tokens, self.slots, unified=self.unified)


class Runner(Protocol):
    """Starts the engine, one trial at a time, under one limit."""

    @property
    def limit(self) -> Limit | None:
        """What stops a trial that takes too much memory; null if nothing does."""

    @property
    def host_free(self) -> int | None:
        """Bytes that the host had free before the first trial; null where nobody can say."""

    def now(self) -> float:
        """Seconds on a clock that only goes forward."""

    def run(self, spec: TrialSpec, seconds: float) -> Trial:
        """One trial from its start to its end, cut off after so many seconds.

        Raises:
            KeyboardInterrupt: The user stopped it; the engine is gone by then.
        """

    def settle(self) -> str | None:
        """Wait for memory to come back after a trial; say what did not."""

    def weightless(self) -> Path | None:
        """A copy of the model without its weights: same memory, and quick to start.

        Null where the model cannot be copied.
        """


class Sizes(Protocol):
    """Bytes of the buffers at points of a command."""

    def total(self, points: Sequence[Point], device: str | None = None) -> list[int | None]:
        """Bytes at each point, on all devices or on one; null where they cannot be said."""


class Forecast(Sizes, Protocol):
    """What a start will take, without a start."""

    def plan(self, command: Command, asked: bool) -> Plan | None:
        """The plan of a command: by formulas alone, or the engine is asked too; null if none."""


class NoForecast:
    """The forecast where nothing can be planned: no header, or one that cannot be read."""

    def plan(self, command: Command, asked: bool) -> Plan | None:
        return None

    def total(self, points: Sequence[Point], device: str | None = None) -> list[int | None]:
        return [None] * len(points)


class Reporter:
    """Told of each step of a diagnosis. This one keeps it to itself."""

    def starting(self, step: str, why: str) -> None:
        """A trial starts: what is tried, and why."""

    def tried(self, command: Command, trial: Trial) -> None:
        """A trial has ended and is valid."""

    def save(self, record: Diagnosis) -> str | None:
        """Keep the record as it is now; what to note in it if that failed."""
        return None
