"""Does a command fit this machine, and what is changed in it so that the engine stays up?"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from arriero.advice.changes import Change
from arriero.base.errors import ArrieroError
from arriero.base.sizes import human
from arriero.base.words import Cost
from arriero.command import Command, parse_command
from arriero.engine import Engine
from arriero.jobs.plan import Planning, PlanOptions
from arriero.launch import edits
from arriero.memory.frontier import WhatIf, frontier
from arriero.record import Advice, Plan, PlanPool
from arriero.report.progress import Progress
from arriero.serve.gates import spelled
from arriero.store import Store


@dataclass(frozen=True)
class Fitted:
    """A plan of a command, and what can be asked of it further."""

    command: Command
    plan: Plan
    what_if: WhatIf
    planning: Planning

    def changed(self, command: Command) -> Fitted:
        """The same for a changed command."""
        return Fitted(command, self.what_if.plan(command), self.what_if, self.planning)


def fitted(
    command: Command, engine: Engine, cwd: Path, scratch: Path, store: Store, progress: Progress
) -> Fitted:
    """Plan a command for the memory that is free now.

    Raises:
        ArrieroError: It cannot be planned.
    """
    planning = Planning(command, PlanOptions(), engine, scratch, cwd, progress)
    try:
        plan = planning.run(store, ())
    finally:
        progress.end()
    if not plan.complete:
        raise KeyboardInterrupt
    return Fitted(command, plan, planning.what_if, planning)


def refuse_misfit(plan: Plan) -> None:
    """Raise for what exact or measured sums show not to fit.

    Raises:
        ArrieroError: It does not; the hint is a command that does, if there is one.
    """
    short = next((pool for pool in plan.pools if pool.starts is False), None)
    if plan.starts is not False or short is None:
        return
    free = f"has {human(short.free)} free" if short.free is not None else "is too small"
    better = next((one for one in plan.advice if one.recommended), None)
    planned = shlex.join(["arriero", "plan", "--", *plan.argv])
    raise ArrieroError(
        f"it does not fit: {short.name} {free}, and the start takes at least"
        f" {human(max(short.surely, 0))}",
        hint=shlex.join(["arriero", "serve", "--", *better.argv])
        if better is not None
        else f"see what takes it with {planned}, or start it anyway with --force",
        id="does-not-fit",
    )


def doubts(plan: Plan) -> Iterator[str]:
    """What speaks against a command that is started nevertheless, one line each."""
    for pool in plan.pools:
        if pool.starts is False:
            yield f"{pool.name} is too small by exact sums: {_lack(pool)}"
        elif pool.starts is None and pool.is_short:
            yield f"{pool.name} may be too small: {_lack(pool)}"
        elif pool.outgrows:
            yield f"what grows while serving can take more than {pool.name} has: {_lack(pool)}"
    for note in plan.notes:
        if note.id == "refused":
            yield note.text.rstrip(".")


def _lack(pool: PlanPool) -> str:
    free = human(pool.free) if pool.free is not None else "an unknown size"
    return f"up to {human(pool.planned)} are planned, {free} is free"


# --- settings that fit --------------------------------------------------------------------------


def chosen(fit: Fitted) -> tuple[Fitted, str]:
    """The command with settings that fit this machine, and what was chosen; empty if nothing was.

    The engine's own defaults are kept where they have room. Else the cheapest change that makes it
    fit is taken, and if no single kind of change does, the largest context with one slot.
    """
    if not any(pool.is_short for pool in fit.plan.pools):
        return fit, ""
    best = next((one for one in fit.plan.advice if one.recommended), None)
    change = as_change(best, fit.command) if best is not None else _with_one_slot(fit)
    if change is None:
        return fit, ""
    return fit.changed(change.apply(fit.command)), spelled(change, fit.command)


def _with_one_slot(fit: Fitted) -> Change | None:
    single = edits.with_slots(fit.command, 1)
    points = frontier(single, fit.what_if, kv_unified=False, n_ctx_train=fit.plan.model.n_ctx_train)
    point = next(iter(points), None)
    if point is None or point.n_ctx is None:
        return None
    settings: dict[str, str | None] = {"-np": "1", "-c": str(point.n_ctx)}
    settings |= dict(zip(point.capped[::2], point.capped[1::2], strict=True))
    return Change("", Cost.CONTEXT, "", settings)


def as_change(advised: Advice, command: Command) -> Change:
    """What an advised command has different, as settings: its own words have secrets masked."""
    after = parse_command(advised.argv, command.flags, command.inherited).effective()
    before = command.effective()
    settings: dict[str, str | None] = {k: v for k, v in after.items() if before.get(k) != v}
    settings |= {flag: None for flag in before if flag not in after}
    return Change("", advised.cost, "", settings)
