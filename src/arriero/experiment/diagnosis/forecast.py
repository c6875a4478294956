"""The forecast of a diagnosis by plans: the engine asked for many at once, else the formulas."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from arriero.base.errors import ArrieroError
from arriero.base.words import Component
from arriero.command import Command
from arriero.experiment.diagnosis.protocols import Point
from arriero.launch.edits import with_context, with_slots
from arriero.memory import Planner
from arriero.record import Plan, PlanBuffer

_SIZED: Final = frozenset(
    {
        *(Component.KV, Component.RS, Component.COMPUTE, Component.OUTPUT),
        *(Component.GRAPH, Component.DRAFT),
    }
)
"""What a start allocates that slots, context or micro-batch change."""
_WORKER: Final = "RPC"


class PlannedForecast:
    """What starts of one command take, at any point of its settings, and no launch.

    To the byte where the engine answers; by the formulas otherwise, which are exact for KV, RS and
    output and give compute and graph a bound.
    """

    def __init__(self, planner: Planner, command: Command) -> None:
        self._planner, self._command = planner, command

    def plan(self, command: Command, asked: bool) -> Plan | None:
        """The plan of any command: by formulas alone, or the engine is asked too; null if none."""
        if asked:
            return self._planner.plans([command])[0]
        with suppress(ArrieroError):
            return self._planner.quick(command)
        return None

    def total(self, points: Sequence[Point], device: str | None = None) -> list[int | None]:
        plans = self._planner.plans([self._at(point) for point in points])
        return [None if plan is None else _bytes(plan.buffers, device) for plan in plans]

    def _at(self, point: Point) -> Command:
        command = self._command
        command = with_slots(command, point.slots, unified=point.unified)
        command = with_context(command, point.tokens)
        if point.n_ubatch is not None:
            command = command.with_value("-ub", str(point.n_ubatch))
        if command.flags.get("--fit") is not None:  # points are compared as they are placed now
            command = command.with_value("--fit", "off")
        return command


def _bytes(buffers: Sequence[PlanBuffer], device: str | None) -> int | None:
    """On a device its buffers; in all also what no size line shows, and nothing of workers.

    A draft model whose file cannot be read is left out: the most of it is the same at every point.
    """
    total = 0
    for buffer in buffers:
        counted = buffer.device == device if device else not buffer.device.startswith(_WORKER)
        if buffer.component not in _SIZED or not counted:
            continue
        if buffer.bytes is None and buffer.component is not Component.DRAFT:
            return None
        total += buffer.bytes or 0
    return total
