"""Where one variable stops working, in as few launches as the prediction allows.

The search knows nothing of llama.cpp: it is told which values worked and which did not, is offered
a prediction, and says which value to try next. It ends when the largest working value has been seen
working twice, next to a value that was seen not working. Values that did both widen a band.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Search:
    """A search on the grid ``low, low + step, … high``.

    Args:
        repeats: How often the largest working value must have been seen working.
    """

    low: int
    high: int
    step: int = 1
    repeats: int = 2
    worked: Counter[int] = field(default_factory=Counter)
    broke: Counter[int] = field(default_factory=Counter)
    misses: int = 0

    def observe(self, value: int, *, works: bool) -> None:
        (self.worked if works else self.broke)[value] += 1

    @property
    def edge(self) -> int | None:
        """Smallest value that was seen not working."""
        return min(self.broke, default=None)

    @property
    def best(self) -> int | None:
        """Largest value seen working that lies below every one seen not working."""
        edge = self.edge
        below = [v for v in self.worked if edge is None or v < edge]
        return max(below, default=None)

    @property
    def shown(self) -> int | None:
        """:attr:`best`, once it has been seen working often enough."""
        best = self.best
        return best if best is not None and self.worked[best] >= self.repeats else None

    @property
    def band(self) -> tuple[int, int] | None:
        """Where runs disagreed: from the largest value below all trouble to the last that works."""
        edge, top = self.edge, max(self.worked, default=None)
        if edge is None or top is None or top < edge:
            return None
        return (self.best if self.best is not None else self.low, max(top, edge))

    def next(self, predicted: int | None) -> int | None:
        """The value to try next; None when nothing is left to learn.

        ``predicted`` is the largest value expected to work. It is followed while it does better
        than halving would.
        """
        best, edge = self.best, self.edge
        floor = self.low if best is None else best + self.step
        ceiling = self.high if edge is None else edge - self.step
        if floor > ceiling:
            if best is None or self.worked[best] >= self.repeats:
                return None
            return best
        if best is None and edge is None:
            return self._snap(predicted if predicted is not None else self.high, floor, ceiling)
        if predicted is None or self.misses >= 3:
            self.misses += 1
            return self._snap((floor + ceiling + self.step) // 2, floor, ceiling)
        self.misses += 1
        if best is not None and predicted <= best:
            return floor
        return self._snap(predicted, floor, ceiling)

    def _snap(self, value: int, floor: int, ceiling: int) -> int:
        on_grid = self.low + (value - self.low) // self.step * self.step
        return max(floor, min(ceiling, on_grid))


def bisection_launches(low: int, high: int, step: int, repeats: int = 2) -> int:
    """Launches that plain halving needs for the same answer in the worst case."""
    values = max(1, (high - low) // step + 1)
    return max(1, (values - 1).bit_length()) + repeats
