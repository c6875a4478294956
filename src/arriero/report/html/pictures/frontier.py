"""The largest context for each number of slots, both axes doubling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from arriero.report.html.markup import Markup, el, join
from arriero.report.html.pictures import drawing as draw
from arriero.report.html.pictures.drawing import word
from arriero.report.view import words as say
from arriero.report.view.changes import Reach
from arriero.report.view.plan import PlanView

_PLOT: Final = (12.0, 97.0)
_TOP, _BOTTOM = 24, 190
_SHAPES: Final = ("peak", "square", "ready")


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
    ticks = [word(_short(int(t)), 0, up(t) + 4, "start") for t in _doublings(tokens)]
    ticks += [word(str(number), across(number), _BOTTOM + 24) for number in sorted({*slots})]
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
                word(_short(size), x, up(size) - 10),
            )
        )
    return marks
