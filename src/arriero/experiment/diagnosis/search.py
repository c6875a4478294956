"""Where one variable stops working, in as few launches as the predictions allow.

The search knows nothing of llama.cpp. It is told how each value ended (served, ready, failed), is
offered predictions of both edges, and says which value to try next. It wants the largest serving
value and a value whose start was seen failing, with as little as possible between the two; every
number it gives was shown by a trial.

How often the largest serving value must serve: twice, since near an edge the next run of the same
value may end otherwise. Once is enough where that run was clear of the edge (the caller saw the run
and says so) and no two runs of this search disagree.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from arriero.base.words import TrialOutcome

SOFT_LAUNCHES: Final = 4
"""Launches after which values between the two edges are left untried."""
_HARD_LAUNCHES: Final = 20


class Reason(StrEnum):
    """Why a value is tried."""

    PREDICTED = "the largest value that should serve"
    BEYOND = "the first value whose start should fail"
    NEXT = "the next value that is not known yet"
    AGAIN = "this close to the edge one run is not enough"


@dataclass
class Search:
    """A search on the grid ``low, low + step, … high``.

    Args:
        repeats: How often the largest serving value must have been seen serving.
        soft: Launches after which only what is missing is still tried.

    Attributes:
        clear: Values that were seen serving far enough from the edge.
        launches: Trials that the search itself asked for.
        reason: Why the value that :meth:`next` gave last is tried.
    """

    low: int
    high: int
    step: int = 1
    repeats: int = 2
    soft: int = SOFT_LAUNCHES
    served: Counter[int] = field(default_factory=Counter)
    ready: Counter[int] = field(default_factory=Counter)
    failed: Counter[int] = field(default_factory=Counter)
    clear: set[int] = field(default_factory=set)
    launches: int = 0
    reason: Reason = Reason.PREDICTED

    def know(self, value: int, outcome: TrialOutcome, *, clear: bool = False) -> None:
        """Take what an earlier trial showed, which this search did not ask for."""
        {
            TrialOutcome.SERVED: self.served,
            TrialOutcome.READY: self.ready,
            TrialOutcome.FAILED: self.failed,
        }[outcome][value] += 1
        if clear and outcome is TrialOutcome.SERVED:
            self.clear.add(value)

    def observe(self, value: int, outcome: TrialOutcome, *, clear: bool = False) -> None:
        """Take what the value that was asked for showed."""
        self.launches += 1
        self.know(value, outcome, clear=clear)

    @property
    def edge(self) -> int | None:
        """Smallest value that was seen not serving, ready or not."""
        return min((*self.ready, *self.failed), default=None)

    @property
    def best(self) -> int | None:
        """Largest value seen serving that lies below every one seen not serving."""
        edge = self.edge
        return max((v for v in self.served if edge is None or v < edge), default=None)

    @property
    def shown(self) -> int | None:
        """:attr:`best`, once it has been seen serving often enough."""
        best = self.best
        if best is None:
            return None
        once = best in self.clear and self.band is None
        return best if once or self.served[best] >= self.repeats else None

    @property
    def largest_ready(self) -> int | None:
        """Largest value seen ready that lies below every one whose start failed."""
        fails = self.fails
        seen = (*self.served, *self.ready)
        return max((v for v in seen if fails is None or v < fails), default=None)

    @property
    def fails(self) -> int | None:
        """Smallest value whose start was seen failing."""
        return min(self.failed, default=None)

    @property
    def band(self) -> tuple[int, int] | None:
        """Where runs of one value, or of ordered values, disagreed: from the best to the last."""
        edge, top = self.edge, max(self.served, default=None)
        if edge is None or top is None or top < edge:
            return None
        return (self.low if self.best is None else self.best, top)

    def next(self, serves: int | None, starts: int | None, grain: int = 1) -> int | None:
        """The value to try next; None when nothing is left to learn.

        Args:
            serves: The largest value expected to serve, null without a basis.
            starts: The largest value expected to start.
            grain: Steps between values that runs cannot tell apart: what two runs of one command
                differ by. Nothing is tried between edges that are no further apart.
        """
        if self.launches >= _HARD_LAUNCHES:
            return None
        if serves is not None and self._contradictions(serves) >= 2:
            serves = None
        best, edge = self.best, self.edge
        floor = self.low if best is None else best + self.step
        ceiling = self.high if edge is None else edge - self.step
        self.reason = Reason.NEXT if self.launches and edge is not None else Reason.PREDICTED
        if best is None:
            return None if floor > ceiling else self._guess(serves, floor, ceiling)
        if floor <= self.high and (value := self._beyond(starts, grain)):
            self.reason = Reason.BEYOND
            return value
        if floor <= ceiling and self._unexplored(serves, edge, grain):
            return self._guess(serves, floor, ceiling)
        left = self.soft - self.launches - (self.shown is None)  # a run more for what was seen once
        if floor <= ceiling and grain == 1 and left > 0:
            self.reason = Reason.NEXT
            return floor
        self.reason = Reason.AGAIN
        return best if self.shown is None else None

    def _contradictions(self, serves: int) -> int:
        """Values that did not serve although they were expected to."""
        return sum(value <= serves for value in {*self.ready, *self.failed})

    def _unexplored(self, serves: int | None, edge: int | None, grain: int) -> bool:
        """Whether a value between the edges is expected to serve, or nobody knows."""
        best = self.low if self.best is None else self.best
        if serves is None:
            return edge is not None or best < self.high
        return min(serves, self.high) >= best + grain * self.step

    def _beyond(self, starts: int | None, grain: int) -> int | None:
        """A value whose start is expected to fail, below those that did; null when none is left, or
        three did not fail."""
        if self.fails is not None:
            near = starts is None or self.fails <= starts + grain * self.step
            if near or self.launches >= self.soft - 1:
                return None
        top = self.largest_ready or self.low
        if starts is None:
            tries, value = self.ready.total(), top + self.step
            return value if 0 < tries < 3 and value <= self.high else None
        tries = sum(v > starts for v in (*self.ready, *self.served))
        value = max(starts, top) + self.step * (1, grain, 4 * grain, 0)[min(tries, 3)]
        below = self.high + self.step if self.fails is None else self.fails
        return value if tries < 3 and value < below else None

    def _guess(self, serves: int | None, floor: int, ceiling: int) -> int:
        """The prediction while it does better than halving would, else the middle."""
        value = (floor + ceiling + self.step) // 2 if serves is None else serves
        on_grid = self.low + (value - self.low) // self.step * self.step
        return max(floor, min(ceiling, on_grid))


def bisection_launches(low: int, high: int, step: int, repeats: int = 2) -> int:
    """Launches that plain halving needs for the same answer in the worst case."""
    values = max(1, (high - low) // step + 1)
    return max(1, (values - 1).bit_length()) + repeats
