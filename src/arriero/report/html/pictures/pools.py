"""Pools of a plan as bars: what is planned against what is free, the margin hatched."""

from __future__ import annotations

from typing import Final

from arriero.base.words import Method
from arriero.record import PlanPool
from arriero.report.html.markup import Markup, el
from arriero.report.html.pictures import drawing as draw
from arriero.report.html.pictures.drawing import word
from arriero.report.view import words as say
from arriero.report.view.plan import PlanView
from arriero.report.view.pools import PoolView, Share
from arriero.report.view.words import left

_LETTER: Final = 1.8
"""Width of a letter in per cent, on a phone: a name is written where its part of a bar is wider."""
_REACH: Final = 2


def pools(facts: PlanView) -> list[Markup]:
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
    if share.buffer.grows:
        return "grows"
    method = share.buffer.method
    return method.value if method in (Method.ESTIMATED, Method.CALIBRATED) else ""


def _item(one: PoolView) -> Markup:
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


def _values(one: PoolView) -> str:
    return " · ".join(f"{share.name} {share.size} ({share.method})" for share in one.shares)


def _bar(one: PoolView, scale: draw.Scale, high: int) -> Markup:
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
            shapes.append(word(share.name, start + width / 2, 44))
    if at > high:
        shapes.append(word(f"… on to {left(at)}", draw.RIGHT, 44, "end"))
    if any(share.buffer.bytes is None for share in one.shares):
        shapes.append(word("?", scale(min(at, high)) + 1, 27, "start"))
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
