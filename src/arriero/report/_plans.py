"""What a plan says about each pool, the context and each change, in words and in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from arriero.base.sizes import MIB, mib
from arriero.base.words import Component, Cost, Method
from arriero.memory.pools import HOST, pool_of
from arriero.memory.settings import AUTO_SLOTS
from arriero.record.documents import Advice, FrontierPoint, Plan, PlanBuffer, PlanPool
from arriero.report import _words as say
from arriero.report._text import printable

GROWING: Final = frozenset({Component.PROMPT_CACHE, Component.CHECKPOINTS})
"""Host memory that is not taken at the start but filled by what is served."""
_SLOTS: Final = ("-np", "--parallel")
_MEANT: Final = {
    Component.PROMPT_CACHE: "can overshoot while it saves",
    Component.CHECKPOINTS: "no limit by bytes exists",
}
_LONG_NAME: Final = 40


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
    def grows(self) -> bool:
        return self.buffer.component in GROWING


@dataclass(frozen=True, kw_only=True)
class Contents:
    """A pool with what is planned in it. ``pool`` is null for what is in no known pool."""

    title: str
    about: str
    shares: tuple[Share, ...]
    verdict: str
    fits: bool | None
    pool: PlanPool | None = field(repr=False)

    @property
    def known_by(self) -> str:
        """The pool for a sentence, with what limits it where that is short."""
        if self.pool is None:
            return self.title
        limit = printable(self.pool.limited_by).removeprefix("memory of ")
        return f"{self.title} ({limit})" if limit and len(limit) <= _LONG_NAME else self.title

    @property
    def lacks_only(self) -> set[Component]:
        """What is unknown in it, if everything else of it is known and the margin is kept."""
        pool = self.pool
        if pool is None or not pool.usable or pool.headroom is None or pool.headroom < pool.margin:
            return set()
        return {share.buffer.component for share in self.shares if share.buffer.bytes is None}


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
    own: bool
    """Whether these are the slots of the command itself."""
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
                fits=None,
                pool=None,
            )
        )
    return tuple(found)


def _contents(pool: PlanPool, doc: Plan) -> Contents:
    inside = [b for b in doc.buffers if pool_of(b.device, doc.pools) is pool]
    inside.sort(key=lambda b: b.component in GROWING)
    return Contents(
        title=printable(pool.name),
        about=_about(pool),
        shares=tuple(_share(buffer, pool, doc) for buffer in inside),
        verdict=_verdict(pool, inside),
        fits=pool.fits,
        pool=pool,
    )


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
    unknown = say.listed(
        [*dict.fromkeys(say.SHORT[b.component] for b in inside if b.bytes is None)]
    )
    grown = pool.planned > pool.at_start
    if not pool.usable:
        return f"its size cannot be used: {printable(pool.note) or 'no reason known'}"
    if pool.free is None or pool.headroom is None:
        return f"{excess(pool.planned)} planned; whether there is room cannot be said"
    if not inside and pool.fits is not False:
        return "nothing is planned here"
    start = pool.free - pool.at_start
    kept = left(pool.margin)
    if pool.fits is not False:
        when = " when all has grown" if grown else ""
        what = f" for what is unknown ({unknown})" if unknown else " as margin"
        return f"{left(pool.headroom)} left{when}, {kept} of them kept{what}"
    over = f"{excess(-pool.headroom)} too much"
    if start < 0:
        later = f", {excess(-pool.headroom)} when all has grown" if grown else ""
        return f"{excess(-start)} too much" + (" at the start" if grown else "") + later
    if start < pool.margin:
        later = f", {over} when all has grown" if grown and pool.headroom < 0 else ""
        return f"{left(start)} left at the start, less than the {kept} to keep{later}"
    if pool.headroom < 0:
        return f"starts with {left(start)} left, but what grows can take {over}"
    return f"starts with {left(start)} left; what grows can leave {left(pool.headroom)} of {kept}"


# --- lines -------------------------------------------------------------------------------------


def _share(buffer: PlanBuffer, pool: PlanPool | None, doc: Plan) -> Share:
    own = pool is not None and buffer.device == ("CPU" if pool.name == HOST else pool.name)
    grows = buffer.component in GROWING
    remark = printable(buffer.reason)
    if grows and buffer.bytes is not None:
        remark = "; ".join(filter(None, (remark, _MEANT[buffer.component])))
    bound = "up to" if grows else "≤" if buffer.upper_bound else ""
    return Share(
        name=say.SHORT[buffer.component],
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
        case Component.RS | Component.CHECKPOINTS if slots > 1 and size % slots == 0:
            return f"{slots} slots × {mib(size // slots)}"
        case _:
            return ""


# --- context -----------------------------------------------------------------------------------


def context_words(doc: Plan) -> tuple[str, ...]:
    """How the server arrives at tokens and slots."""
    return tuple(_context(doc))


def _context(doc: Plan) -> Iterator[str]:
    context = doc.context
    if context is None:
        return
    slots, tokens, each = context.n_seq_max, context.n_ctx, context.n_ctx_seq
    given = f"-c {context.asked}" if context.asked else "no -c given"
    auto = slots == AUTO_SLOTS and context.kv_unified and not {*_SLOTS} & {*doc.argv}
    if slots == 1:
        shared = f"{tokens} tokens for one slot"
    elif context.kv_unified:
        shared = f"{tokens} tokens, shared by {slots} slots"
    else:
        given = f"{given} -np {slots}" if context.asked else f"{given}, -np {slots}"
        shared = f"{tokens} tokens: {each} a slot"
    if context.asked is None and tokens == doc.model.n_ctx_train:
        shared += " (the model's training context)"
    yield f"{given} is {shared}" if context.asked else f"{given}: {shared}"
    if context.asked and tokens > context.asked and not context.kv_unified and slots > 1:
        yield "a slot's share is rounded up to 256"
    if auto and doc.argv:
        yield f"no -np given: the server takes {AUTO_SLOTS}"
    trained = doc.model.n_ctx_train
    if trained and each > trained:
        yield f"a slot has more than the {trained} tokens that the model was trained on"
    if context.n_rs_seq:
        planes = say.count(context.n_rs_seq, "more plane")
        yield f"for drafted tokens each slot keeps {planes} of recurrent state"


# --- changes and frontier ----------------------------------------------------------------------


def fixes(advice: Iterable[Advice]) -> tuple[Fix, ...]:
    """Changes in the order of the document: cheapest first."""
    return tuple(
        Fix(
            change=printable(one.change),
            pool=printable(one.pool),
            headroom=one.headroom,
            costs=_costs(one),
            advice=one,
        )
        for one in advice
    )


def _costs(advice: Advice) -> str:
    cost = "nothing" if advice.cost is Cost.FREE else advice.cost.value
    enough = {True: "", False: "not enough alone", None: "may not be enough"}[advice.fits]
    return "; ".join(filter(None, (cost, enough)))


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
            own=doc.context is not None
            and (point.n_seq_max, point.kv_unified)
            == (doc.context.n_seq_max, doc.context.kv_unified),
            point=point,
        )
        for point in doc.frontier
    )


def _limited(point: FrontierPoint) -> str:
    if point.limited_by is None:
        return "training context" if point.n_ctx is not None else "unknown"
    room = "" if point.headroom is None else f", {left(point.headroom)} left"
    return printable(point.limited_by) + room
