"""What every picture is drawn with: scales, axes, marks, hatchings, keys."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from arriero.base.sizes import MIB
from arriero.report.html.markup import Markup, el, join
from arriero.report.html.pictures import drawing as draw

LEFT: Final = 0.0
RIGHT: Final = 99.0


Scale = Callable[[float], float]
"""From a value to a position in per cent of the width."""


def percent(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".") + "%"


def picture(title: str, text: str, height: int, *children: str) -> Markup:
    """An SVG with its text alternative."""
    return el(
        "svg",
        el("title", title),
        el("desc", text),
        *children,
        width="100%",
        height=height,
        role="img",
        aria_label=f"{title}. {text}",
    )


def patterns() -> Markup:
    """Hatchings that the pictures share."""
    return el(
        "svg",
        el("title", "Hatchings used in the pictures"),
        el(
            "defs",
            _hatch("refused", "M-2,2 l4,-4 M0,8 l8,-8 M6,10 l4,-4", 8),
            _hatch("maybe", "M4,3 a1,1 0 1,0 0.01,0", 8),
            _hatch("estimated", "M2,1 a1,1 0 1,0 0.01,0 M6,5 a1,1 0 1,0 0.01,0", 8),
            _hatch("calibrated", "M4,0 v8", 8),
            _hatch("grows", "M0,2 h8 M0,6 h8", 8),
            _hatch("margin", "M-2,6 l4,4 M0,0 l8,8 M6,-2 l4,4", 8),
        ),
        width=0,
        height=0,
        aria_hidden="true",
        class_="defs",
    )


def _hatch(name: str, path: str, step: int) -> Markup:
    return el(
        "pattern",
        el("path", d=path, class_=f"stroke-{name}"),
        id=f"hatch-{name}",
        width=step,
        height=step,
        patternUnits="userSpaceOnUse",
    )


def mark(x: float, y: float, shape: str, hint: str) -> Markup:
    """A trial: disc served, triangle ready, cross failed."""
    paths = {
        "served": "M-6,0 a6,6 0 1,0 12,0 a6,6 0 1,0 -12,0 z",
        "ready": "M0,-7 L7,6 L-7,6 z",
        "failed": "M-5,-5 L5,5 M-5,5 L5,-5",
        "square": "M-5,-5 h10 v10 h-10 z",
        "given": "M-7,0 a7,7 0 1,0 14,0 a7,7 0 1,0 -14,0 z M0,-3 V3 M-3,0 H3",
        "peak": "M0,-5 L5,0 L0,5 L-5,0 z",
    }
    return el(
        "svg",
        el("title", hint),
        el("path", d=paths[shape], class_=f"mark mark-{shape}"),
        x=percent(x),
        y=y,
        overflow="visible",
    )


def upright(x: float, top: float, bottom: float, kind: str) -> Markup:
    return el("line", x1=percent(x), x2=percent(x), y1=top, y2=bottom, class_=kind)


def across(y: float, kind: str) -> Markup:
    return el("line", x1=percent(LEFT), x2=percent(RIGHT), y1=y, y2=y, class_=kind)


def linear(low: float, high: float, start: float = LEFT, stop: float = RIGHT) -> Scale:
    span = (high - low) or 1
    return lambda value: start + (stop - start) * (value - low) / span


def log2(low: float, high: float, start: float = LEFT, stop: float = RIGHT) -> Scale:
    line = linear(math.log2(low), math.log2(high), start, stop)
    return lambda value: line(math.log2(value))


def anchor(x: float) -> str:
    return "start" if x < 8 else "end" if x > 92 else "middle"


def axis(scale: Scale, ticks: Sequence[float], label: Callable[[float], str]) -> Markup:
    shown = [
        join(
            upright(scale(tick), 0, 5, "axis"),
            el(
                "text",
                label(tick),
                x=percent(scale(tick)),
                y=18,
                text_anchor=anchor(scale(tick)),
                class_="tick",
            ),
        )
        for tick in ticks
    ]
    return picture("Axis", ", ".join(map(label, ticks)), 22, across(0.5, "axis"), *shown)


def size_ticks(high: float) -> list[float]:
    """Zero and up to five more sizes, a power of two MiB apart."""
    step = float(MIB)
    while high / step > 5:
        step *= 2
    return [step * index for index in range(int(high // step) + 1)]


def doublings(low: float, high: float) -> list[float]:
    first, last = math.ceil(math.log2(low)), math.floor(math.log2(high))
    step = max(1, math.ceil((last - first + 1) / 6))
    return [2.0**power for power in range(first, last + 1, step)]


def swatch(kind: str, text: str, hatch: str = "") -> Markup:
    """A key's entry for an area of a class, of a hatching, or of both."""
    inner = [el("rect", width=14, height=14, class_=kind)]
    if hatch:
        inner.append(el("rect", width=14, height=14, fill=f"url(#hatch-{hatch})"))
    return el("li", icon(text, *inner), text)


def limit_key(text: str) -> Markup:
    return el("li", icon(text, el("line", x1=7, x2=7, y1=0, y2=14, class_="limit")), text)


def line_key(name: str, index: int) -> Markup:
    line = el("line", x1=0, x2=14, y1=7, y2=7, class_=f"series series-{index % 4}")
    return el("li", icon(name, line), name)


def icon(text: str, *children: str) -> Markup:
    return el("svg", el("title", text), *children, width=14, height=14, aria_hidden="true")


def key_mark(shape: str, text: str) -> Markup:
    shown = mark(0, 7, shape, text).replace('x="0%"', 'x="7"')
    return el("li", icon(text, Markup(shown)), text)


def word(text: str, x: float, y: float, anchor: str = "middle") -> Markup:
    return el("text", text, x=draw.percent(x), y=y, text_anchor=anchor, class_="tick")
