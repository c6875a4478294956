"""The lines of a plan."""

from __future__ import annotations

from arriero.base.words import Component, Method
from arriero.memory.compute import Bound
from arriero.record import PlanBuffer, PlanGrowth


def line(
    component: Component,
    device: str,
    size: int | None,
    method: Method,
    *,
    upper_bound: bool = False,
    reason: str = "",
) -> PlanBuffer:
    """What a start takes."""
    return PlanBuffer(
        component=component,
        device=device,
        bytes=size,
        method=method,
        upper_bound=upper_bound,
        reason=reason,
    )


def at_most(
    component: Component, device: str, size: int, method: Method = Method.ESTIMATED
) -> PlanBuffer:
    """A start takes no more."""
    return line(component, device, size, method, upper_bound=True)


def unknown(component: Component, device: str, reason: str) -> PlanBuffer:
    """Nobody can say what a start takes."""
    return line(component, device, None, Method.UNKNOWN, reason=reason)


def bounded(component: Component, device: str, size: Bound) -> PlanBuffer:
    """Known from above, and from below where anything is."""
    return PlanBuffer(
        component=component,
        device=device,
        bytes=size.most,
        method=Method.ESTIMATED,
        upper_bound=True,
        at_least=size.least or None,
    )


def growing(
    component: Component, device: str, size: int | None, method: Method, reason: str = ""
) -> PlanBuffer:
    """What serving fills, up to so much."""
    return PlanBuffer(
        component=component,
        device=device,
        bytes=size,
        method=method,
        upper_bound=size is not None,
        reason=reason,
        grows=True,
    )


def growth(buffer: PlanBuffer, each: int | None, per: str, flag: str) -> PlanGrowth:
    """What adds to a line that grows, and the flag that caps it."""
    return PlanGrowth(
        component=buffer.component,
        device=buffer.device,
        most=buffer.bytes,
        each=each,
        per=per,
        flag=flag,
    )
