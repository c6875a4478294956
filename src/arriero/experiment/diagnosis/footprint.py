"""What a setting will take: the sizes that depend on it, and the rest from a real run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from arriero.base.buffers import HOST
from arriero.base.words import Component
from arriero.experiment.diagnosis.protocols import Point, Sizes
from arriero.memory.threads import http_threads
from arriero.record import Plan

_FILE: Final = "_Mapped"
_PROBES: Final = 16
"""Points asked for at once: a dry run answers many nearly as fast as one."""


def kept_by_host(plan: Plan) -> int | None:
    """Bytes of host memory that a start takes and that cannot be dropped again.

    Pages of the file can be dropped, and what graph metadata reserves is hardly touched.
    """
    pool = next((pool for pool in plan.pools if HOST in pool.devices), None)
    if pool is None:
        return None
    no_need = (
        b.bytes or 0
        for b in plan.buffers
        if b.device.endswith(_FILE) or b.component is Component.GRAPH
    )
    return pool.at_start - sum(no_need)


@dataclass(frozen=True)
class Footprint:
    """Bytes used at any point, anchored to one trial that was measured.

    ``fixed`` is what that trial used beyond the sizes at its point: weights, libraries, heap. The
    prediction is exact to the noise between two runs where the sizes are.

    Args:
        stack: Bytes of address space per HTTP thread; 0 where those do not count.
        threads_asked: ``--threads-http`` of the command.
        device: The engine's device that is counted; null for everything on the host's account.
    """

    sizes: Sizes
    fixed: int
    stack: int
    threads_asked: int | None
    device: str | None = None

    @classmethod
    def anchored(
        cls,
        sizes: Sizes,
        used: int,
        at: Point,
        *,
        stack: int,
        threads_asked: int | None,
        device: str | None,
    ) -> Footprint | None:
        """From what a trial used at its point; null if no size is known there."""
        bare = cls(sizes, 0, stack, threads_asked, device)
        variable = bare.totals([at])[0]
        if variable is None:
            return None
        return cls(sizes, used - variable, stack, threads_asked, device)

    def totals(self, points: Sequence[Point]) -> list[int | None]:
        """Bytes at each point; null where the sizes cannot be said."""
        return [
            None
            if size is None
            else self.fixed + size + self.stack * http_threads(point.slots, self.threads_asked)
            for point, size in zip(points, self.sizes.total(points, self.device), strict=True)
        ]

    def fitting(self, points: Sequence[Point], capacity: int) -> int | None:
        """How many of the points, smallest first, fit; null where the sizes cannot be said."""
        low, high = 0, len(points)
        while low < high:
            step = max(1, (high - low) // _PROBES)
            probes = sorted({*range(low, high, step), high - 1})
            totals = self.totals([points[i] for i in probes])
            for index, total in zip(probes, totals, strict=True):
                if total is None:
                    return None
                if total <= capacity:
                    low = index + 1
                else:
                    high = index
                    break
        return low
