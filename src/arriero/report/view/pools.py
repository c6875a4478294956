"""The pools of a plan and the shares of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from arriero.base.buffers import HOST
from arriero.base.sizes import MIB, mib
from arriero.base.words import Component, Method
from arriero.record import Plan, PlanBuffer, PlanPool
from arriero.report.view import words as say
from arriero.report.view.room import about_pool, knob_of, pool_verdict
from arriero.report.view.text import printable
from arriero.report.view.words import PLANNED, left

_MEANT: Final = {
    Component.PROMPT_CACHE: "saving can exceed its limit",
    Component.CHECKPOINTS: "no flag limits their total size",
}
_LONG_NAME: Final = 40
_FEW: Final = 3


@dataclass(frozen=True, kw_only=True)
class Share:
    """One component on one device."""

    name: str
    device: str
    """Empty where the pool is the device's own."""
    detail: str
    """What the size is made of: ``64 slots × 62.81 MiB``."""
    bound: str
    """``≤`` for an upper bound, ``up to`` for what grows, else empty."""
    method: str
    remark: str
    buffer: PlanBuffer = field(repr=False)

    @property
    def size(self) -> str:
        """MiB with the bound that it is; ``?`` where it is unknown."""
        size = self.buffer.bytes
        return "?" if size is None else f"{self.bound} {mib(size)}".lstrip()

    @property
    def about(self) -> tuple[str, ...]:
        """Where it is and what it is made of, as far as that is to be said."""
        return tuple(filter(None, (self.device, self.detail)))


@dataclass(frozen=True, kw_only=True)
class PoolView:
    """A pool with what is planned in it. ``pool`` is null for what is in no known pool."""

    title: str
    about: str
    shares: tuple[Share, ...]
    verdict: str
    knob: str
    """What moves its limit; empty where nothing does."""
    fits: bool | None
    pool: PlanPool | None = field(repr=False)

    @property
    def is_between(self) -> bool:
        """Whether only a bound is more than there is."""
        pool = self.pool
        if pool is None or not pool.usable or pool.free is None or pool.starts is not None:
            return False
        return pool.at_start > pool.free

    @property
    def known_by(self) -> str:
        """The pool for a sentence, with what limits it where that is short."""
        if self.pool is None:
            return self.title
        limit = printable(self.pool.limited_by).removeprefix("memory of ")
        return f"{self.title} ({limit})" if limit and len(limit) <= _LONG_NAME else self.title

    @property
    def fits_as_known(self) -> bool:
        """Whether it fits but for the backend's own pools, which no plan can know."""
        pool = self.pool
        if pool is None or not pool.usable or pool.headroom is None or pool.headroom < pool.margin:
            return False
        unknown = {share.buffer.component for share in self.shares if share.buffer.bytes is None}
        return unknown <= {Component.POOL}


def contents(doc: Plan) -> tuple[PoolView, ...]:
    """Pools in the order of the document, those that lack room first."""
    found = [_contents(pool, doc) for pool in doc.pools]
    found.sort(key=lambda one: one.fits is not False)
    names = {pool.name for pool in doc.pools}
    homeless = tuple(_share(b, None, doc) for b in doc.buffers if b.pool not in names)
    if homeless:
        found.append(
            PoolView(
                title="in no known pool",
                about="",
                shares=homeless,
                verdict="nothing is known about this memory",
                knob="",
                fits=None,
                pool=None,
            )
        )
    return tuple(found)


def _contents(pool: PlanPool, doc: Plan) -> PoolView:
    inside = [b for b in doc.buffers if b.pool == pool.name]
    inside.sort(key=lambda one: one.grows)
    return PoolView(
        title=printable(pool.name),
        about=about_pool(pool),
        shares=tuple(_share(buffer, pool, doc) for buffer in inside),
        verdict=pool_verdict(pool, inside),
        knob=knob_of(pool),
        fits=pool.fits,
        pool=pool,
    )


def rooms(pools: Sequence[PoolView]) -> str:
    """What is left in some pools that hold what is planned."""
    known = [one.pool for one in pools if one.pool is not None and one.pool.headroom is not None]
    if not known:
        return "nothing is planned in any pool"
    grown = " with full caches" * any(pool.planned > pool.at_start for pool in known)
    if len(known) > _FEW:
        least = min(pool.headroom or 0 for pool in known)
        return f"at least {left(least)} left on each of {len(known)} pools{grown}"
    told = [f"{left(pool.headroom or 0)} on {printable(pool.name)}" for pool in known]
    told[:1] = [told[0].replace(" on ", " left on ", 1)]
    return say.listed(told) + grown


def _share(buffer: PlanBuffer, pool: PlanPool | None, doc: Plan) -> Share:
    own = pool is not None and buffer.device == ("CPU" if pool.name == HOST else pool.name)
    remark = printable(buffer.reason)
    if buffer.grows and buffer.bytes is not None:
        remark = "; ".join(filter(None, (remark, _MEANT.get(buffer.component, ""))))
    bound = "up to" if buffer.grows else "≤" if buffer.upper_bound else ""
    return Share(
        name=PLANNED[buffer.component],
        device="" if own else printable(buffer.device),
        detail=_detail(buffer, doc),
        bound=bound if buffer.bytes is not None else "",
        method=_method(buffer),
        remark=remark,
        buffer=buffer,
    )


def _method(buffer: PlanBuffer) -> str:
    if buffer.residual is None:
        return buffer.method.value
    if buffer.method is Method.CALIBRATED:
        return f"{buffer.method.value} {buffer.residual / MIB:+.2f}"
    return f"{buffer.method.value}, {buffer.residual / MIB:+.2f} from runs"


def _detail(buffer: PlanBuffer, doc: Plan) -> str:
    context, size = doc.context, buffer.bytes
    if context is None or not size:
        return ""
    slots = context.n_seq_max
    match buffer.component:
        case Component.KV:
            return f"{context.n_ctx} tokens"
        case Component.RS | Component.CHECKPOINTS if size % slots == 0:
            each, times = size // slots, [say.count(slots, "slot")]
            kept = context.checkpoints if buffer.component is Component.CHECKPOINTS else None
            if kept and each % kept == 0:
                each, times = each // kept, [str(slots), str(kept)]
            return " × ".join([*times, mib(each)])
        case _:
            return ""
