"""What a plan says about each pool, the context and each change, in words and in order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from arriero.base.sizes import MIB, mib
from arriero.base.words import Component, Cost, Method
from arriero.launch.caches import DEFAULT_CHECKPOINTS
from arriero.launch.slots import AUTO_SLOTS
from arriero.memory.pools import HOST, pool_of, short
from arriero.record import (
    Advice,
    FrontierPoint,
    Plan,
    PlanBuffer,
    PlanContext,
    PlanPool,
)
from arriero.report import _words as say
from arriero.report._text import printable

_GROWING: Final = frozenset({Component.PROMPT_CACHE, Component.CHECKPOINTS})
"""What grows in plans that do not say so of each line."""
_SLOTS: Final = ("-np", "--parallel")
_CHECKPOINTS: Final = ("-ctxcp", "--ctx-checkpoints", "--swa-checkpoints")
_NAMES: Final = {**say.SHORT, Component.POOL: "backend pool"}
_MEANT: Final = {
    Component.PROMPT_CACHE: "can overshoot while saving",
    Component.CHECKPOINTS: "nothing limits their bytes",
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
class Contents:
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


def contents(doc: Plan) -> tuple[Contents, ...]:
    """Pools in the order of the document, those that lack room first."""
    found = [_contents(pool, doc) for pool in doc.pools]
    found.sort(key=lambda one: one.fits is not False)
    homeless = tuple(
        _share(b, None, doc) for b in doc.buffers if pool_of(b.device, doc.pools) is None
    )
    if homeless:
        found.append(
            Contents(
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


def _contents(pool: PlanPool, doc: Plan) -> Contents:
    inside = [b for b in doc.buffers if pool_of(b.device, doc.pools) is pool]
    inside.sort(key=grows)
    return Contents(
        title=printable(pool.name),
        about=_about(pool),
        shares=tuple(_share(buffer, pool, doc) for buffer in inside),
        verdict=_verdict(pool, inside),
        knob=_knob(pool),
        fits=pool.fits,
        pool=pool,
    )


def grows(buffer: PlanBuffer) -> bool:
    """Whether it is not taken at the start but filled by what is served."""
    return buffer.grows or buffer.component in _GROWING


def left(size: int) -> str:
    """Room in whole MiB, never rounded up."""
    return f"{size // MIB} MiB"


def excess(size: int) -> str:
    """What is too much in whole MiB, never rounded down."""
    return f"{-(-size // MIB)} MiB"


def _about(pool: PlanPool) -> str:
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


def _verdict(pool: PlanPool, inside: Sequence[PlanBuffer]) -> str:
    """Whether the pool holds what is planned, in half a sentence."""
    unknown = dict.fromkeys(_NAMES[b.component] for b in inside if b.bytes is None)
    grown = pool.planned > pool.at_start
    if not pool.usable:
        return f"its size cannot be used: {printable(pool.note) or 'no reason known'}"
    if pool.free is None or pool.headroom is None:
        return f"{excess(pool.planned)} planned; whether there is room is not known"
    sure = pool.surely or pool.at_start  # plans of before say no more than that it does not fit
    if pool.fits is False and sure > pool.free:
        return _too_much(pool, sure - pool.free, pool.free, grown=grown)
    start = pool.free - pool.at_start
    if start < 0:
        return (
            f"the start takes at least {excess(pool.surely)} and at most {excess(pool.at_start)}, "
            f"{left(pool.free)} are there"
        )
    if pool.headroom >= pool.margin:
        return _room(pool, unknown, grown=grown)
    if pool.headroom < 0:
        until = _until(pool)
        later = f"what grows can take {excess(-pool.headroom)} more than there is"
        return f"starts with {left(start)} left, but {later}" + (f": {until}" if until else "")
    if start < pool.margin:
        return f"starts with {left(start)} left, less than the {left(pool.margin)} to keep"
    later = f"what grows can leave {left(pool.headroom)} of the {left(pool.margin)} to keep"
    return f"starts with {left(start)} left, but {later}"


def _too_much(pool: PlanPool, sure: int, free: int, *, grown: bool) -> str:
    most = pool.at_start - free
    told = f"{excess(sure)} too much" + (" at the start" if grown else "")
    if excess(most) != excess(sure) and most > sure:
        told += f", up to {excess(most)}"
    return told + (f", {excess(pool.planned - free)} when all has grown" if grown else "")


def _room(pool: PlanPool, unknown: Mapping[str, None], *, grown: bool) -> str:
    room = f"{left(pool.headroom or 0)} left" + " when all has grown" * grown
    if not unknown:
        return f"{room}, {pool.margin // MIB} of them kept as margin"
    names = say.listed([*unknown])
    if unknown.keys() == {_NAMES[Component.POOL]}:
        return f"{room}, {pool.margin // MIB} of them kept for the {names}"
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


def _knob(pool: PlanPool) -> str:
    if not pool.knob:
        return ""
    how = f": {printable(pool.move_with)}" if pool.move_with else ""
    return f"the limit is {printable(pool.knob)}{how}"


def rooms(pools: Sequence[Contents]) -> str:
    """What is left in some pools that hold what is planned."""
    known = [one.pool for one in pools if one.pool is not None and one.pool.headroom is not None]
    if not known:
        return "nothing is planned in any pool"
    grown = " when all has grown" * any(pool.planned > pool.at_start for pool in known)
    if len(known) > _FEW:
        least = min(pool.headroom or 0 for pool in known)
        return f"at least {left(least)} left on each of {len(known)} pools{grown}"
    told = [f"{left(pool.headroom or 0)} on {printable(pool.name)}" for pool in known]
    told[:1] = [told[0].replace(" on ", " left on ", 1)]
    return say.listed(told) + grown


# --- lines -------------------------------------------------------------------------------------


def _share(buffer: PlanBuffer, pool: PlanPool | None, doc: Plan) -> Share:
    own = pool is not None and buffer.device == ("CPU" if pool.name == HOST else pool.name)
    remark = printable(buffer.reason)
    if grows(buffer) and buffer.bytes is not None:
        remark = "; ".join(filter(None, (remark, _MEANT.get(buffer.component, ""))))
    bound = "up to" if grows(buffer) else "≤" if buffer.upper_bound else ""
    return Share(
        name=_NAMES[buffer.component],
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
            kept = _kept(doc.argv) if buffer.component is Component.CHECKPOINTS else None
            if kept and each % kept == 0:
                each, times = each // kept, [str(slots), str(kept)]
            return " × ".join([*times, mib(each)])
        case _:
            return ""


def _kept(argv: Sequence[str]) -> int | None:
    """Checkpoints of one slot; null where a flag adds to them or the command is not known."""
    if not argv or any(word.startswith(("--spec-", "-md", "--model-draft")) for word in argv):
        return None
    said = [value for flag, value in pairwise(argv) if flag in _CHECKPOINTS]
    if not said:
        return DEFAULT_CHECKPOINTS
    return int(said[-1]) if said[-1].isdecimal() else None


# --- context -----------------------------------------------------------------------------------


def context_words(doc: Plan) -> tuple[str, ...]:
    """How the server arrives at tokens and slots."""
    return tuple(_context(doc))


def _context(doc: Plan) -> Iterator[str]:
    context = doc.context
    if context is None:
        return
    slots, tokens, each = context.n_seq_max, context.n_ctx, context.n_ctx_seq
    told = f"-c {context.asked}" if context.asked else "no -c given"
    if slots > 1 and not context.kv_unified:
        told += f"{'' if context.asked else ','} -np {slots}"
    if tokens != context.asked:
        told += f" is {tokens} tokens" if context.asked else f": {tokens} tokens"
    if context.asked is None and tokens == doc.model.n_ctx_train:
        told += ", the model's training context"
    if slots == 1:
        yield f"{told}, one slot"
    elif not context.kv_unified:
        rounded = " (a share is rounded up to 256)" if tokens > (context.asked or tokens) else ""
        yield f"{told}: {each} a slot{rounded}"
    else:
        auto = slots == AUTO_SLOTS and doc.argv and not {*_SLOTS} & {*doc.argv}
        why = f" (no -np given: the server takes {AUTO_SLOTS})" if auto else ""
        yield f"{told}, shared by {slots} slots{why}"
    trained = doc.model.n_ctx_train
    if trained and each > trained:
        yield f"a slot has more than the {trained} tokens that the model was trained on"
    if context.n_rs_seq:
        planes = say.count(context.n_rs_seq, "more plane")
        yield f"for drafted tokens each slot keeps {planes} of recurrent state"


# --- changes and frontier ----------------------------------------------------------------------


def fixes(doc: Plan) -> tuple[tuple[Fix, ...], tuple[Fix, ...]]:
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
    if doc.fits is not False and not any(map(short, doc.pools)):
        return (), tuple(shown)
    best = next((one.argv for one in doc.advice if one.recommended), ())
    given = {*doc.argv}

    def on_top(fix: Fix) -> bool:
        """Whether its command has what the recommended one changes, and it does not say so."""
        told = {*fix.advice.change.split()}
        return not fix.advice.recommended and bool(({*best} - given - told) & {*fix.advice.argv})

    beside = [fix for fix in shown if on_top(fix)]
    fixes = sorted((f for f in shown if f not in beside), key=lambda f: f.advice.cost.rank)
    return tuple(fixes), tuple(beside)


def _costs(advice: Advice, margins: Mapping[str, int]) -> str:
    cost = "nothing" if advice.cost is Cost.FREE else advice.cost.value
    # Unknown is mostly a backend's own pool, and the margin is kept for that.
    roomy = advice.headroom is not None and advice.headroom >= margins.get(advice.pool, 0)
    if advice.fits or (advice.fits is None and roomy):
        return cost
    return f"{cost}; {'not enough alone' if advice.fits is False else 'may not be enough'}"


def reaches(doc: Plan) -> tuple[Reach, ...]:
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
