"""Two pictures of a plan: what is planned in each pool, and the largest context by slots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from arriero.base.words import Method
from arriero.record import PlanPool
from arriero.report import _drawing as draw
from arriero.report import _words as say
from arriero.report._markup import Markup, el, join
from arriero.report._plans import Contents, Reach, Share, grows, left
from arriero.report.view import PlanView

_LETTER: Final = 1.8
"""Width of a letter in per cent, on a phone: a name is written where its part of a bar is wider."""
_PLOT: Final = (12.0, 97.0)
_TOP, _BOTTOM = 24, 190
_REACH: Final = 2
_SHAPES: Final = ("peak", "square", "ready")


# --- pools -------------------------------------------------------------------------------------


def bars(facts: PlanView) -> list[Markup]:
    """One bar per pool: what is planned in it against what is free, the margin hatched."""
    pools = [one for one in facts.pools if one.pool is not None and one.shares]
    if not pools:
        return []
    shares = [share for one in pools for share in one.shares]
    known = [share for share in shares if share.buffer.bytes]
    parts = dict.fromkeys((share.buffer.component, share.name) for share in known)
    key = [draw.swatch(f"fill-{part.value}", name) for part, name in parts]
    key += [
        draw.swatch("blank", text, hatch)
        for hatch, text in (
            ("estimated", "estimated, at most"),
            ("calibrated", "calibrated"),
            ("grows", "grows while serving, up to"),
        )
        if any(_hatch(share) == hatch for share in known)
    ]
    key += [draw.swatch("well", "margin kept", "margin"), draw.limit_key("free")]
    if any(share.buffer.bytes is None for share in shares):
        key.append(el("li", "? not known, not drawn"))
    return [
        el(
            "figure",
            el("figcaption", "What is planned against what is free, each pool to its own scale"),
            el("ul", *key, class_="key"),
            el("ol", *(_item(one) for one in pools), class_="bars"),
        )
    ]


def _hatch(share: Share) -> str:
    if grows(share.buffer):
        return "grows"
    method = share.buffer.method
    return method.value if method in (Method.ESTIMATED, Method.CALIBRATED) else ""


def _item(one: Contents) -> Markup:
    pool = one.pool
    assert pool is not None  # noqa: S101  for the type checker
    high = max(_room(pool), pool.at_start, 1)
    # What grows can be many times what there is: all of it would hide the rest.
    high = max(high, min(pool.planned, _REACH * high))
    scale = draw.linear(0, high)
    state = {True: "served", False: "failed", None: "ready"}[one.fits]
    return el(
        "li",
        el("p", el("b", one.title), f" {one.about}", class_="label"),
        _bar(one, scale, high),
        draw.axis(scale, draw.size_ticks(high), lambda tick: say.size(int(tick))),
        el("p", f"{_values(one)} MiB", class_="values"),
        el("p", f"→ {one.verdict}", class_=f"state state-{state}"),
        *([el("p", one.knob, class_="values")] if one.knob else []),
    )


def _room(pool: PlanPool) -> int:
    """What is free, if that is known and can be true."""
    return pool.free or 0 if pool.usable else 0


def _values(one: Contents) -> str:
    return " · ".join(f"{share.name} {share.size} ({share.method})" for share in one.shares)


def _bar(one: Contents, scale: draw.Scale, high: int) -> Markup:
    pool = one.pool
    assert pool is not None  # noqa: S101  for the type checker
    room = _room(pool)
    shapes = [_block(0, scale(room), "well", "")]
    at = 0
    for share in one.shares:
        size = share.buffer.bytes or 0
        start = scale(min(at, high))
        width = scale(min(at + size, high)) - start
        hint = el("title", f"{share.name} {share.size} MiB, {share.method}")
        shapes.append(_block(start, width, f"fill-{share.buffer.component.value}", "", hint))
        if _hatch(share):
            shapes.append(_block(start, width, "", _hatch(share)))
        at += size
        if at <= high and width > _LETTER * len(share.name):
            shapes.append(_word(share.name, start + width / 2, 44))
    if at > high:
        shapes.append(_word(f"… on to {left(at)}", draw.RIGHT, 44, "end"))
    if any(share.buffer.bytes is None for share in one.shares):
        shapes.append(_word("?", scale(min(at, high)) + 1, 27, "start"))
    if room:
        first = max(room - pool.margin, 0)
        hint = el("title", f"margin of {left(pool.margin)}")
        shapes.append(_block(scale(first), scale(room) - scale(first), "", "margin", hint))
        shapes.append(draw.upright(scale(room), 8, 36, "limit"))
    told = f"{_values(one)} MiB. {one.verdict}"
    return draw.picture(one.title, told, 48, *shapes)


def _block(start: float, width: float, kind: str, hatch: str, *inside: Markup) -> Markup:
    return el(
        "rect",
        *inside,
        x=draw.percent(start),
        width=draw.percent(width),
        y=12,
        height=20,
        class_=kind or None,
        fill=f"url(#hatch-{hatch})" if hatch else None,
    )


def _word(text: str, x: float, y: float, anchor: str = "middle") -> Markup:
    return el("text", text, x=draw.percent(x), y=y, text_anchor=anchor, class_="tick")


# --- frontier ----------------------------------------------------------------------------------


def frontier(facts: PlanView) -> list[Markup]:
    """The largest context for each number of slots, both axes doubling."""
    reaches = facts.reaches
    context = facts.doc.context
    seen = [reach for reach in reaches if reach.point.n_ctx]
    if len({reach.point.n_seq_max for reach in seen}) < 2:
        return []
    given = [(context.n_seq_max, context.n_ctx)] if context else []
    slots = [reach.point.n_seq_max for reach in reaches] + [at for at, _ in given]
    tokens = [size for r in seen for size in (r.point.n_ctx, r.point.n_ctx_seq) if size]
    tokens += [size for _, size in given]
    across = draw.log2(min(slots), max(slots), *_PLOT)
    up = draw.log2(min(tokens), max(max(tokens), 2 * min(tokens)), _BOTTOM, _TOP)
    shapes = _by_limit(seen)
    return [
        el(
            "figure",
            el("figcaption", "Largest context for each number of slots (both scales double)"),
            el("ul", *_key(shapes, seen, reaches, bool(given)), class_="key"),
            draw.picture(
                "Largest context for each number of slots",
                "; ".join(
                    [
                        *map(_told, reaches),
                        *(f"as given: {say.count(n, 'slot')}, {c} tokens" for n, c in given),
                    ]
                ),
                _BOTTOM + 28,
                *_curves(seen, across, up),
                *_grid(slots, tokens, across, up),
                *_points(reaches, shapes, across, up),
                *(draw.mark(across(n), up(c), "given", f"as given: {c} tokens") for n, c in given),
            ),
        )
    ]


def _told(reach: Reach) -> str:
    room = f" ({reach.room})" if reach.room else ""
    each = f", {reach.each} a slot" if reach.point.n_ctx_seq else ""
    slots = say.count(reach.point.n_seq_max, "slot")
    return f"{slots}: {reach.tokens} tokens{each}, limited by {reach.limited_by}{room}"


def _by_limit(seen: Sequence[Reach]) -> dict[str, str]:
    """A shape for each thing that limits."""
    ends = dict.fromkeys(r.limited_by for r in seen if r.point.limited_by is not None)
    shapes = {end: _SHAPES[index % len(_SHAPES)] for index, end in enumerate(ends)}
    return shapes | {r.limited_by: "served" for r in seen if r.point.limited_by is None}


def _key(
    shapes: dict[str, str], seen: Sequence[Reach], reaches: Sequence[Reach], given: bool
) -> list[Markup]:
    key = [draw.line_key("tokens in all", 1), draw.line_key("tokens of one slot", 0)]
    key += [draw.key_mark(shape, f"limited by {end}") for end, shape in shapes.items()]
    if len(seen) < len(reaches):
        key.append(draw.key_mark("failed", "no context fits"))
    if given:
        key.append(draw.key_mark("given", "the command as given"))
    return key


def _curves(seen: Sequence[Reach], across: draw.Scale, up: draw.Scale) -> list[Markup]:
    """Lines of tokens in all and of one slot, apart for separate and unified slots."""
    lines = []
    for unified in (False, True):
        points = [r.point for r in seen if r.point.kv_unified is unified]
        for kind, sizes in (
            ("series series-1", [point.n_ctx for point in points]),
            ("series series-0", [point.n_ctx_seq for point in points]),
        ):
            told = " ".join(
                f"{10 * across(point.n_seq_max):.1f},{up(size):.1f}"
                for point, size in zip(points, sizes, strict=True)
                if size
            )
            lines.append(
                el("polyline", points=told, class_=kind, vector_effect="non-scaling-stroke")
            )
    return [
        el(
            "svg",
            *lines,
            width="100%",
            height=_BOTTOM,
            viewBox=f"0 0 1000 {_BOTTOM}",
            preserveAspectRatio="none",
        )
    ]


def _grid(
    slots: Sequence[int], tokens: Sequence[int], across: draw.Scale, up: draw.Scale
) -> list[Markup]:
    ticks = [_word(_short(int(t)), 0, up(t) + 4, "start") for t in _doublings(tokens)]
    ticks += [_word(str(number), across(number), _BOTTOM + 24) for number in sorted({*slots})]
    return [draw.across(_BOTTOM + 8, "axis"), *ticks]


def _doublings(tokens: Sequence[int]) -> list[float]:
    return draw.doublings(min(tokens), max(tokens))


def _short(tokens: int) -> str:
    """To four digits: the table and the mark's title have all of them."""
    return f"{tokens / 1024:.4g}k" if tokens >= 1024 else str(tokens)


def _points(
    reaches: Sequence[Reach], shapes: dict[str, str], across: draw.Scale, up: draw.Scale
) -> list[Markup]:
    marks = []
    for reach in reaches:
        x, size = across(reach.point.n_seq_max), reach.point.n_ctx
        if size is None:
            marks.append(draw.mark(x, _BOTTOM, "failed", _told(reach)))
            continue
        marks.append(
            join(
                draw.mark(x, up(size), shapes[reach.limited_by], _told(reach)),
                _word(_short(size), x, up(size) - 10),
            )
        )
    return marks
