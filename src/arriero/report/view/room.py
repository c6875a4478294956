"""Whether a pool holds what is planned, in half a sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from arriero.base.sizes import MIB
from arriero.base.words import Component
from arriero.record import PlanBuffer, PlanPool
from arriero.report.view import words as say
from arriero.report.view.text import printable
from arriero.report.view.words import PLANNED, excess, left


def about_pool(pool: PlanPool) -> str:
    parts = []
    if pool.free is not None:
        whole = pool.total not in (None, pool.free)
        parts.append(f"{left(pool.free)} free" + (f" of {left(pool.total or 0)}" if whole else ""))
    else:
        parts.append("free memory unknown")
    if pool.limited_by:
        parts.append(printable(pool.limited_by))
    shared = [printable(name) for name in pool.devices if name != pool.name]
    if shared:
        parts.append(f"one memory for {say.listed(shared)}")
    if pool.note and pool.usable:
        parts.append(printable(pool.note))
    return " · ".join(parts)


def pool_verdict(pool: PlanPool, inside: Sequence[PlanBuffer]) -> str:
    """Whether the pool holds what is planned, in half a sentence."""
    unknown = dict.fromkeys(PLANNED[b.component] for b in inside if b.bytes is None)
    grown = pool.planned > pool.at_start
    if not pool.usable:
        return f"its reported size is not usable: {printable(pool.note) or 'no reason known'}"
    if pool.free is None or pool.headroom is None:
        return f"{excess(pool.planned)} planned; the free memory is unknown"
    if pool.fits is False and pool.surely > pool.free:
        return _too_much(pool, pool.surely - pool.free, pool.free, grown=grown)
    start = pool.free - pool.at_start
    if start < 0:
        return (
            f"the start takes at least {excess(pool.surely)} and at most {excess(pool.at_start)}; "
            f"{left(pool.free)} are free"
        )
    if pool.headroom >= pool.margin:
        return _room(pool, unknown, grown=grown)
    if pool.headroom < 0:
        until = _until(pool)
        later = f"full caches would take {excess(-pool.headroom)} more than there is"
        return f"starts with {left(start)} left, but {later}" + (f": {until}" if until else "")
    if start < pool.margin:
        return f"starts with {left(start)} left, less than the safety margin of {left(pool.margin)}"
    later = (
        f"full caches would cut the safety margin of {left(pool.margin)} to {left(pool.headroom)}"
    )
    return f"starts with {left(start)} left, but {later}"


def _too_much(pool: PlanPool, sure: int, free: int, *, grown: bool) -> str:
    most = pool.at_start - free
    told = f"{excess(sure)} too much" + (" at the start" if grown else "")
    if excess(most) != excess(sure) and most > sure:
        told += f", up to {excess(most)}"
    return told + (f", {excess(pool.planned - free)} with full caches" if grown else "")


def _room(pool: PlanPool, unknown: Mapping[str, None], *, grown: bool) -> str:
    room = f"{left(pool.headroom or 0)} left" + " with full caches" * grown
    if not unknown:
        return f"{room}, {pool.margin // MIB} MiB of it as safety margin"
    names = say.listed([*unknown])
    if unknown.keys() == {PLANNED[Component.POOL]}:
        return f"{room}, {pool.margin // MIB} MiB of it kept for the {names}"
    are = "are" if len(unknown) > 1 or names.endswith("s") else "is"
    return f"{names} {are} unknown; {room} before {'them' if are == 'are' else 'it'}"


def _until(pool: PlanPool) -> str:
    """What it takes to fill what the start leaves, and the flags that cap it."""
    told = []
    for one in pool.growth:
        if one.enough:
            what = (
                one.per.replace(" ", "s ", 1)
                if one.component is Component.CHECKPOINTS
                else (one.per.replace("prompt", "prompts", 1))
            )
            count = f"{one.enough} {what if one.enough > 1 else one.per}"
            told.append(f"full after {count} ({one.flag} caps it)")
    if told:
        return " or ".join([told[0], *(text.removeprefix("full ") for text in told[1:])])
    flags = [one.flag for one in pool.growth if one.flag and one.most]
    return f"{say.listed(flags)} cap it" if flags else ""


def knob_of(pool: PlanPool) -> str:
    if not pool.knob:
        return ""
    how = f": {printable(pool.move_with)}" if pool.move_with else ""
    return f"the limit is {printable(pool.knob)}{how}"
