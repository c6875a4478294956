"""Where one variable stops working, in as few launches as the predictions allow.

The search knows nothing of llama.cpp. It is told how each value ended (served, ready, failed), is
offered predictions of both edges, and says which value to try next. It wants the largest serving
value seen serving twice and a value whose start was seen failing, with as little as possible
between the two; every number it gives was shown by a trial.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from arriero.base.words import TrialOutcome

SOFT_LAUNCHES: Final = 4
"""Launches after which values between the two edges are left untried."""
_HARD_LAUNCHES: Final = 20


@dataclass
class Search:
    """A search on the grid ``low, low + step, … high``.

    Args:
        repeats: How often the largest serving value must have been seen serving.
        soft: Launches after which only what is missing is still tried.
    """

    low: int
    high: int
    step: int = 1
    repeats: int = 2
    soft: int = SOFT_LAUNCHES
    served: Counter[int] = field(default_factory=Counter)
    ready: Counter[int] = field(default_factory=Counter)
    failed: Counter[int] = field(default_factory=Counter)

    def observe(self, value: int, outcome: TrialOutcome) -> None:
        {
            TrialOutcome.SERVED: self.served,
            TrialOutcome.READY: self.ready,
            TrialOutcome.FAILED: self.failed,
        }[outcome][value] += 1

    @property
    def launches(self) -> int:
        return self.served.total() + self.ready.total() + self.failed.total()

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
        return best if best is not None and self.served[best] >= self.repeats else None

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

    def next(self, serves: int | None, starts: int | None) -> int | None:
        """The value to try next; None when nothing is left to learn.

        Args:
            serves: The largest value expected to serve, null without a basis.
            starts: The largest value expected to start.
        """
        if self.launches >= _HARD_LAUNCHES:
            return None
        if serves is not None and self._contradictions(serves) >= 2:
            serves = None
        best, edge = self.best, self.edge
        floor = self.low if best is None else best + self.step
        ceiling = self.high if edge is None else edge - self.step
        if best is None:
            return None if floor > ceiling else self._guess(serves, floor, ceiling)
        if self.fails is None and floor <= self.high and (value := self._beyond(starts)):
            return value
        if floor <= ceiling and self._unexplored(serves, edge):
            return self._guess(serves, floor, ceiling)
        if floor <= ceiling and self.launches < self.soft - 1:
            return floor
        return best if self.served[best] < self.repeats else None

    def _contradictions(self, serves: int) -> int:
        """Values that did not serve although they were expected to."""
        return sum(value <= serves for value in {*self.ready, *self.failed})

    def _unexplored(self, serves: int | None, edge: int | None) -> bool:
        """Whether a value between the edges is expected to serve, or nobody knows."""
        best = self.low if self.best is None else self.best
        if serves is None:
            return edge is not None or best < self.high
        return min(serves, self.high) >= best + self.step

    def _beyond(self, starts: int | None) -> int | None:
        """A value whose start is expected to fail; null when none is left or three did not."""
        top = self.largest_ready or self.low
        if starts is None:
            tries, value = self.ready.total(), top + self.step
            return value if 0 < tries < 3 and value <= self.high else None
        tries = sum(v > starts for v in (*self.ready, *self.served))
        value = max(starts, top) + self.step * (1 if tries < 2 else 4)
        return value if tries < 3 and value <= self.high else None

    def _guess(self, serves: int | None, floor: int, ceiling: int) -> int:
        """The prediction while it does better than halving would, else the middle."""
        value = (floor + ceiling + self.step) // 2 if serves is None else serves
        on_grid = self.low + (value - self.low) // self.step * self.step
        return max(floor, min(ceiling, on_grid))


def bisection_launches(low: int, high: int, step: int, repeats: int = 2) -> int:
    """Launches that plain halving needs for the same answer in the worst case."""
    values = max(1, (high - low) // step + 1)
    return max(1, (values - 1).bit_length()) + repeats
