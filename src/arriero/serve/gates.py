"""Gates: what is changed in a command so that its engine stays up, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from arriero.advice.caches import HostCaches
from arriero.advice.changes import Change, caches_bounded
from arriero.base.sizes import human
from arriero.base.words import Component, Cost
from arriero.command import Command
from arriero.launch import caches
from arriero.record import Plan, PlanGrowth, PlanPool, Probe
from arriero.record.status import Gate

_CAPPED: Final = {Component.PROMPT_CACHE: "saved prompts", Component.CHECKPOINTS: "checkpoints"}


def spelled(change: Change, command: Command) -> str:
    """What a change does to a command: ``-cram 8192 -> 1024``; a default is called so."""
    parts = []
    for flag, (before, after) in change.difference(command).items():
        new = "left out" if after is None else after
        parts.append(f"{flag} {'default' if before is None else before} -> {new}")
    return ", ".join(parts)


def bounded_caches(command: Command, plan: Plan, reserve: int) -> tuple[Command, Gate] | None:
    """Caps for host caches that could outgrow their pool; None where they cannot.

    Args:
        reserve: Bytes that stay free besides, if more than the plan's own margin.
    """
    pool = next((one for one in plan.pools if one.outgrows and _grown(one)), None)
    if pool is None or pool.free is None:
        return None
    grown = _grown(pool)
    others = sum(one.most or 0 for one in pool.growth if one not in grown.values())
    room = pool.free - max(pool.margin, reserve) - pool.at_start - others
    change = _capped(command, plan, grown, room)
    if change is None or not change.difference(command):
        return None
    named = " and ".join(_CAPPED[component] for component in grown)
    most = [one.most for one in grown.values()]
    reach = human(sum(size or 0 for size in most)) if None not in most else "any size"
    why = (
        f"{named} may reach {reach}; {pool.name} has {human(pool.free)} free,"
        f" and the start takes {human(pool.at_start)} of it"
    )
    return change.apply(command), Gate(change=spelled(change, command), why=why)


def _grown(pool: PlanPool) -> dict[Component, PlanGrowth]:
    """What grows in the pool and can be capped."""
    return {one.component: one for one in pool.growth if one.component in _CAPPED and one.flag}


def _capped(
    command: Command, plan: Plan, grown: dict[Component, PlanGrowth], room: int
) -> Change | None:
    prompts, kept = (grown.get(component) for component in _CAPPED)
    if room <= 0:
        off = {one.flag: "0" for one in grown.values()}
        return Change("", Cost.PROMPT_REUSE, "", {**off})
    slots = plan.context.n_seq_max if plan.context is not None else 1
    count = max(1, caches.checkpoints(command) * slots)
    taken = (kept.most or 0) if kept is not None else 0
    limit = prompts.most if prompts is not None else 0
    return caches_bounded(command, HostCaches(limit, taken, taken // count), room, slots)


def saves_off(
    command: Command, devices: Sequence[str], probe: Probe
) -> tuple[Command, Gate] | None:
    """No saves from devices that cannot give state back; None where a probe showed that they can.

    Args:
        devices: From which saves read.
        probe: What was tried.
    """
    if probe.outcome != "broke":
        return None
    where = ", ".join(devices)
    why = (
        f"this engine dies when it saves a prompt from {where}; a copy of the model without weights"
        f" served with this, and without it ended so: {probe.why}"
    )
    return _with(command, probe.change, why)


def saves_known_to_fail(
    command: Command, devices: Sequence[str], because: str
) -> tuple[Command, Gate] | None:
    """No saves where a gotcha applies that was reproduced on this build."""
    why = f"this engine dies when it saves a prompt from {', '.join(devices)}: {because}"
    return _with(command, {caches.PROMPT_CACHE: "0"}, why)


def saves_not_risked(
    command: Command, devices: Sequence[str], because: str
) -> tuple[Command, Gate] | None:
    """No saves where a gotcha says that they may end the engine and nothing shows the contrary."""
    where = ", ".join(devices)
    why = f"saving a prompt from {where} may end this engine, and it could not be tried: {because}"
    return _with(command, {caches.PROMPT_CACHE: "0"}, why)


def _with(command: Command, settings: Mapping[str, str], why: str) -> tuple[Command, Gate] | None:
    change = Change("", Cost.PROMPT_REUSE, "", {**settings})
    if not change.difference(command):
        return None
    return change.apply(command), Gate(change=spelled(change, command), why=why)
