"""Questions that memory rules ask about a plan's pools."""

from __future__ import annotations

from collections.abc import Iterator

from arriero.base.buffers import HOST
from arriero.base.words import Component
from arriero.gotchas.facts import is_in
from arriero.record import Plan, PlanPool


def known(plan: Plan) -> Iterator[tuple[PlanPool, int]]:
    """The pools in use whose free memory is known, and that memory in bytes."""
    for pool in plan.pools:
        if pool.free is not None and pool.usable:
            yield pool, pool.free


def host(plan: Plan) -> tuple[PlanPool, int] | None:
    """The pool of host memory and its free bytes; None if they are unknown."""
    return next(((pool, free) for pool, free in known(plan) if HOST in pool.devices), None)


def holds(plan: Plan, pool: PlanPool, component: Component) -> int:
    """Bytes of a component in one pool."""
    return sum(
        b.bytes or 0
        for b in plan.buffers
        if b.component is component and is_in(b.device, plan, pool.name)
    )
