"""What commands will take, by their plans: the engine asked for many at once, else the formulas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from arriero.advice import context, slots
from arriero.base.errors import ArrieroError
from arriero.base.words import Component
from arriero.command import Command
from arriero.engine import Engine
from arriero.engine.oracle import DryRun, EngineParams, Unanswered, dry_run
from arriero.experiment.diagnosis.case import Point
from arriero.gguf import Header
from arriero.machine import Pool
from arriero.memory import plan_budget
from arriero.record import Plan, PlanBuffer

_SECONDS: Final = 60.0
_SIZED: Final = frozenset(
    {
        *(Component.KV, Component.RS, Component.COMPUTE, Component.OUTPUT),
        *(Component.GRAPH, Component.DRAFT),
    }
)
"""What a start allocates that slots, context or micro-batch change."""
_WORKER: Final = "RPC"
Ask = Callable[[EngineParams], DryRun | Unanswered]


class Planner:
    """Plans for many commands of one model on one engine.

    A dry run answers many requests nearly as fast as one, so they are put together, and each answer
    is kept. An engine that gives none, or has workers, which a dry run does not reach, is asked no
    further: its plans are those of the formulas.
    """

    def __init__(
        self,
        engine: Engine,
        header: Header,
        command: Command,
        *,
        model: Path,
        pools: Sequence[Pool],
        draft: Header | None = None,
    ) -> None:
        self.header, self.model, self.pools = header, model, pools
        self._draft = draft
        self._build, self._environ = engine.build, command.environ
        self.library_dir = engine.path.resolve().parent
        """Corrected by the first trial, where the engine stands behind a wrapper."""
        self.answers = not command.has("--rpc")
        """Whether the engine is asked."""
        self._known: dict[EngineParams, DryRun | Unanswered] = {}

    def plans(self, commands: Sequence[Command]) -> list[Plan | None]:
        """One plan for each command; null where the header or the command makes none possible."""
        if self.answers:
            self._ask_for(commands)
        ask = self._answer if self.answers else None
        return [self._plan(command, ask) for command in commands]

    def planned(self, command: Command) -> Plan:
        """The plan by formulas alone.

        Raises:
            ArrieroError: The header or the command is one that the engine would refuse.
        """
        return self._budget(command, None)

    def plan(self, command: Command, asked: bool) -> Plan | None:
        """The plan of one command by formulas alone, or with the engine asked; null as above."""
        return self.plans([command])[0] if asked else self._plan(command, None)

    def _plan(self, command: Command, ask: Ask | None) -> Plan | None:
        try:
            return self._budget(command, ask)
        except ArrieroError:
            return None

    def _budget(self, command: Command, ask: Ask | None) -> Plan:
        return plan_budget(
            self.header,
            command,
            self.pools,
            model=self.model,
            build=self._build,
            draft=self._draft,
            ask=ask,
        )

    def _ask_for(self, commands: Sequence[Command]) -> None:
        """Ask at once for all that the plans of these commands will want to know."""
        wanted: dict[EngineParams, None] = {}

        def listen(request: EngineParams) -> DryRun | Unanswered:
            wanted[request] = None
            return Unanswered("not asked yet")

        for command in commands:
            self._plan(command, listen)
        missing = [request for request in wanted if request not in self._known]
        found = dry_run(self.library_dir, missing, environ=self._environ, timeout=_SECONDS)
        self._known.update(zip(missing, found, strict=True))
        self.answers = all(isinstance(answer, DryRun) for answer in found)

    def _answer(self, request: EngineParams) -> DryRun | Unanswered:
        if request not in self._known:
            found = dry_run(self.library_dir, [request], environ=self._environ, timeout=_SECONDS)
            self._known[request] = found[0]
        return self._known[request]


class PlannedSizes:
    """Bytes of a command at any point of its settings, and no launch.

    To the byte where the engine answers; by the formulas otherwise, which are exact for KV, RS and
    output and give compute and graph a bound.
    """

    def __init__(self, planner: Planner, command: Command) -> None:
        self._planner, self._command = planner, command

    def total(self, points: Sequence[Point], device: str | None = None) -> list[int | None]:
        plans = self._planner.plans([self._at(point) for point in points])
        return [None if plan is None else _bytes(plan.buffers, device) for plan in plans]

    def _at(self, point: Point) -> Command:
        command = self._command
        command = slots(point.slots, unified=point.unified, command=command).apply(command)
        command = context(point.tokens).apply(command)
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
