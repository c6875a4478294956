"""What earlier runs took beyond their plans, as corrections of what a plan can only bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from arriero.base.words import Component, Method
from arriero.record import PlanBuffer


@dataclass(frozen=True)
class Calibration:
    """What a real run took beyond what was planned, in bytes.

    ``same`` is true for a run of this model, build and device. Of other runs only what they took
    too much is borrowed, never what they took less.
    """

    component: Component
    device: str
    residual: int
    same: bool


def calibrated(buffer: PlanBuffer, runs: Sequence[Calibration]) -> PlanBuffer:
    """The line corrected by runs; one that is exact or measured stays as it is."""
    if buffer.method in (Method.EXACT, Method.MEASURED):
        return buffer
    mine = [r for r in runs if (r.component, r.device) == (buffer.component, buffer.device)]
    same = [run.residual for run in mine if run.same]
    if same:
        residual = max(same)
        return msgspec.structs.replace(
            buffer,
            bytes=max(0, (buffer.bytes or 0) + residual),
            method=Method.CALIBRATED,
            upper_bound=False,
            residual=residual,
        )
    borrowed = max((run.residual for run in mine), default=0)
    if borrowed <= 0 or buffer.bytes is None:
        return buffer
    return msgspec.structs.replace(
        buffer,
        bytes=buffer.bytes + borrowed,
        residual=borrowed,
        reason="; ".join(filter(None, (buffer.reason, "similar runs took more"))),
    )
