"""Sizes predicted from what this binary printed in the trials so far."""

from __future__ import annotations

from collections.abc import Sequence

from arriero.base.words import Component
from arriero.experiment.diagnosis.protocols import Point
from arriero.record import Trial


class PrintedSizes:
    """RS is linear in slots, KV in cells; the rest is interpolated between the trials seen.

    Right by construction for one trial; a second one that differs in slots or context corrects what
    is not linear (SWA caches, compute).
    """

    def __init__(self, trials: Sequence[Trial]) -> None:
        self._trials = trials

    def total(self, points: Sequence[Point], device: str | None = None) -> list[int | None]:
        return _Printed(self._trials, device).total(points)


class _Printed:
    """The lines through what was printed, for one device or all."""

    def __init__(self, trials: Sequence[Trial], device: str | None) -> None:
        self._rs_slot = 0.0
        kv: list[tuple[int, int]] = []
        compute: list[tuple[int, int]] = []
        for trial in trials:
            slots, cells = trial.effective.n_seq_max, trial.effective.n_ctx
            if not slots or not cells:
                continue
            if (rs := buffers_of(trial, Component.RS, device)) is not None:
                self._rs_slot = rs / slots
            if (size := buffers_of(trial, Component.KV, device)) is not None:
                kv.append((cells, size))
            if (size := buffers_of(trial, Component.COMPUTE, device)) is not None:
                compute.append((slots, size))
        self._kv, self._compute = kv, compute

    def total(self, points: Sequence[Point]) -> list[int | None]:
        if not self._kv and not self._rs_slot:
            return [None] * len(points)
        return [
            round(
                self._rs_slot * p.slots
                + _line(self._kv, p.context.cells, through_zero=True)
                + _line(self._compute, p.slots, through_zero=False)
            )
            for p in points
        ]


def _line(seen: list[tuple[int, int]], at: int, *, through_zero: bool) -> float:
    """The line through the two points nearest to ``at``; one point: proportional, or constant."""
    points = sorted(dict(seen).items(), key=lambda point: abs(point[0] - at))
    if not points:
        return 0.0
    (x0, y0) = points[0]
    if len(points) == 1:
        return y0 * at / x0 if through_zero else y0
    (x1, y1) = points[1]
    return y0 + (at - x0) * (y1 - y0) / (x1 - x0)


def buffers_of(trial: Trial, component: Component, device: str | None = None) -> int | None:
    """Bytes of one component over all devices, or on one; null if the trial printed none."""
    found = [
        b.bytes
        for b in trial.buffers
        if b.component is component and (device is None or b.device == device)
    ]
    return sum(found) if found else None
