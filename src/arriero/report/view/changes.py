"""The changes that a plan advises, and the largest contexts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from arriero.base.words import Cost
from arriero.record import Advice, FrontierPoint, Plan, PlanContext
from arriero.report.view.text import printable
from arriero.report.view.words import excess, left


@dataclass(frozen=True, kw_only=True)
class Fix:
    """One change: what it leaves in its pool and what it costs."""

    change: str
    pool: str
    headroom: int | None
    costs: str
    advice: Advice = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Reach:
    """The largest context for a number of slots, as table cells."""

    slots: str
    tokens: str
    each: str
    limited_by: str
    now: str
    """The command's own context, where these are its slots."""
    room: str
    """What is left in the limiting pool, or lacks there."""
    point: FrontierPoint = field(repr=False)


def fixes_of(doc: Plan) -> tuple[tuple[Fix, ...], tuple[Fix, ...]]:
    """Changes that make the command fit, cheapest first, and what is good with any of them."""
    margins = {pool.name: pool.margin for pool in doc.pools}
    shown = [
        Fix(
            change=printable(one.change),
            pool=printable(one.pool),
            headroom=one.headroom,
            costs=_costs(one, margins),
            advice=one,
        )
        for one in doc.advice
    ]
    if doc.fits is not False and not any(pool.is_short for pool in doc.pools):
        return (), tuple(shown)
    best = next((one.argv for one in doc.advice if one.recommended), ())
    given = {*doc.argv}

    def on_top(fix: Fix) -> bool:
        """Whether its command has what the recommended one changes, and it does not say so."""
        told = {*fix.advice.change.split()}
        return not fix.advice.recommended and bool(({*best} - given - told) & {*fix.advice.argv})

    beside = [fix for fix in shown if on_top(fix)]
    fixes_of = sorted((f for f in shown if f not in beside), key=lambda f: f.advice.cost.rank)
    return tuple(fixes_of), tuple(beside)


def _costs(advice: Advice, margins: Mapping[str, int]) -> str:
    cost = "nothing" if advice.cost is Cost.FREE else advice.cost.value
    # Unknown is mostly a backend's own pool, and the margin is kept for that.
    roomy = advice.headroom is not None and advice.headroom >= margins.get(advice.pool, 0)
    if advice.fits or (advice.fits is None and roomy):
        return cost
    return f"{cost}; {'not enough alone' if advice.fits is False else 'may not be enough'}"


def reaches_of(doc: Plan) -> tuple[Reach, ...]:
    return tuple(
        Reach(
            slots=str(point.n_seq_max),
            tokens="none fits" if point.n_ctx is None else str(point.n_ctx),
            each="–"
            if point.n_ctx_seq is None
            else "shared"
            if point.kv_unified and point.n_seq_max > 1
            else str(point.n_ctx_seq),
            limited_by=_limited(point),
            now=_now(point, doc.context),
            room=_left_over(point.headroom),
            point=point,
        )
        for point in doc.frontier
    )


def _left_over(headroom: int | None) -> str:
    if headroom is None:
        return ""
    return f"{left(headroom)} left" if headroom >= 0 else f"{excess(-headroom)} too much"


def _now(point: FrontierPoint, context: PlanContext | None) -> str:
    same = context is not None and (point.n_seq_max, point.kv_unified) == (
        context.n_seq_max,
        context.kv_unified,
    )
    return f"now {context.n_ctx}" if context is not None and same else ""


def _limited(point: FrontierPoint) -> str:
    if point.limited_by is not None:
        return printable(point.limited_by)
    return "unknown" if point.n_ctx is None else "training context"
