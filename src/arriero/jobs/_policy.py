"""What a supervised engine is started with after it was lost: less, or without a worker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from arriero.advice import advise
from arriero.advice.changes import Change, context, remedies, slots
from arriero.base import limits
from arriero.base.errors import ArrieroError
from arriero.command import Command
from arriero.engine import Engine, list_devices
from arriero.gguf import Header, read_header
from arriero.jobs._fitting import as_change
from arriero.launch import edits
from arriero.launch.context import PAD
from arriero.launch.drafting import draft_model
from arriero.launch.placement import overrides, workers
from arriero.launch.projector import projector_file
from arriero.logs.model import Failure
from arriero.machine import pools
from arriero.memory import Planner
from arriero.memory.frontier import WhatIf
from arriero.record import Plan
from arriero.serve.assignment import Smaller
from arriero.serve.gates import spelled

_LEAST_CONTEXT: Final = 512
"""Tokens of one slot: below this a server is of little use."""
_PLACED_BY_NUMBER: Final = ("-ts", "-mg", "-dev")
"""What counts or names devices, which are others without a worker."""


@dataclass(frozen=True)
class Policy:
    """Plans the next start of one engine for the memory that is free then."""

    engine: Engine
    cwd: Path

    def smaller(self, command: Command, failure: Failure | None) -> Smaller | None:
        """The mildest change that is planned to take less and to start; None where there is none.

        What the plan itself recommends comes first, then what is known to help against the failure,
        then half of the slots, then half of the context.
        """
        planning = self._planning(command)
        if planning is None:
            return None
        header, what_if = planning
        base = what_if.plan(command)
        for change in _changes(command, failure, header, what_if, base):
            if not change.difference(command):
                continue
            changed = change.apply(command)
            with suppress(ArrieroError):
                plan = what_if.plan(changed)
                if plan.starts is not False and _total(plan) < _total(base):
                    return Smaller(changed, spelled(change, command))
        return None

    def without(self, command: Command, lost: frozenset[str]) -> Smaller | None:
        """The command without these workers, if what is left holds it; None if it does not."""
        named = workers(command)
        left = [worker for worker in named if worker not in lost]
        placed = any("RPC" in device for _, device in overrides(command, "-ot"))
        if placed or len(left) == len(named):
            return None
        settings: dict[str, str | None] = {
            flag: None for flag in _PLACED_BY_NUMBER if command.has(flag)
        }
        changed = edits.with_settings(command.without("--rpc"), settings)
        if left:
            changed = changed.with_value("--rpc", ",".join(left))
        if workers(changed) != tuple(left):
            return None  # a variable from outside names them
        planning = self._planning(changed)
        if planning is None or not planning[1].holds(changed):
            return None
        gone = ", ".join(worker for worker in named if worker in lost)
        return Smaller(changed, " ".join([f"without the worker {gone}", *map(_dropped, settings)]))

    def _planning(self, command: Command) -> tuple[Header, WhatIf] | None:
        typed = command.model_path()
        if typed is None:
            return None
        path = self.cwd / limits.expanded(typed)
        try:
            header = read_header(path)
            devices = list_devices(
                self.engine, command.environ, rpc=",".join(workers(command)) or None
            )
            planner = Planner(
                header,
                pools(devices or ()),
                model=path,
                build=self.engine.build,
                draft=self._beside(draft_model(command)),
                mmproj=self._beside(projector_file(command)),
            )
            what_if = WhatIf(planner.quick)
            what_if.plan(command)
        except ArrieroError:
            return None
        return header, what_if

    def _beside(self, typed: str | None) -> Header | None:
        if typed is None:
            return None
        with suppress(ArrieroError):
            return read_header(self.cwd / limits.expanded(typed))
        return None


def _changes(
    command: Command, failure: Failure | None, header: Header, what_if: WhatIf, base: Plan
) -> Iterator[Change]:
    """Candidates, the mildest first."""
    counsel = advise(command, header, what_if)
    for one in counsel.advice:
        if one.recommended:
            yield as_change(one, command)
    now = base.context
    if failure is not None:
        n_ubatch = now.n_ubatch if now is not None and now.n_ubatch else 512
        yield from remedies(failure, command, n_ubatch=n_ubatch)
    if now is None:
        return
    if now.n_seq_max > 1:
        yield slots(now.n_seq_max // 2, unified=now.kv_unified, command=command)
    half = now.n_ctx // 2 // PAD * PAD
    if half >= _LEAST_CONTEXT * (1 if now.kv_unified else now.n_seq_max):
        yield context(half)


def _total(plan: Plan) -> int:
    """Everything that is planned in pools that could be short."""
    return sum(pool.planned for pool in plan.pools)


def _dropped(flag: str) -> str:
    return f"and {flag}"
