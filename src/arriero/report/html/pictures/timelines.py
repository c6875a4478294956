"""Memory while loading and serving."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Final

from arriero.base.words import LimitKind
from arriero.record import Sample, Trial
from arriero.report.html.markup import Markup, el, join
from arriero.report.html.pictures import drawing as draw
from arriero.report.html.pictures.heading import heading
from arriero.report.view import words as say
from arriero.report.view.diagnosis import DiagnosisView
from arriero.report.view.text import printable

PANELS: Final = 4
POINTS: Final = 400
_TOP: Final = 16
_BOTTOM: Final = 116
"""Where a panel's curves begin and end, in pixels from its top."""


def timelines(facts: DiagnosisView) -> list[Markup]:
    """Memory while loading and serving, for the trials that tell most."""
    doc = facts.doc
    sampled = [row for row in facts.table.rows if len(row.trial.samples) > 1]
    best = doc.recommendation.trial if doc.recommendation else None
    telling = sorted(sampled, key=lambda row: (row.n != best, row.weight, row.n))[:PANELS]
    rows = [row for row in sampled if row in telling]
    if not rows:
        return []
    high = max(
        max(size for _, size in points)
        for row in rows
        for points in _series(row.trial.samples).values()
    )
    limit = doc.baseline.limit
    counts_space = limit is not None and limit.kind is LimitKind.ADDRESS_SPACE
    if limit is not None:
        high = max(high, limit.bytes)
    names = dict.fromkeys(name for row in rows for name in _series(row.trial.samples))
    key = [draw.line_key(name, index) for index, name in enumerate(names)]
    if limit:
        key.append(draw.limit_key(say.limit(limit)))
    panels = [
        el(
            "li",
            heading(row),
            _panel(row.trial, list(names), high, limit.bytes if limit else None),
        )
        for row in rows
    ]
    left_out = len(sampled) - len(rows)
    note = f" {say.count(left_out, 'trial')} with samples left out." if left_out else ""
    kind = " Address space is not RAM." if counts_space else ""
    return [
        el(
            "figure",
            el("figcaption", f"Memory over time, from the launch.{kind}{note}"),
            el("ul", *key, class_="key"),
            el("ol", *panels, class_="bars"),
        )
    ]


def _series(samples: Sequence[Sample]) -> dict[str, list[tuple[float, int]]]:
    lines: dict[str, list[tuple[float, int]]] = {}
    for sample in samples:
        named = {
            "address space": sample.address_space,
            "anonymous memory": sample.anonymous,
            **{printable(name): size for name, size in sample.device.items()},
        }
        for name, size in named.items():
            if size is not None:
                lines.setdefault(name, []).append((sample.at, size))
    return {name: _thinned(points) for name, points in lines.items()}


def _thinned(points: list[tuple[float, int]]) -> list[tuple[float, int]]:
    """At most :data:`POINTS` points, each the highest of its stretch: no peak is lost."""
    step = math.ceil(len(points) / POINTS)
    stretches = (points[start : start + step] for start in range(0, len(points), step))
    return [max(stretch, key=lambda point: point[1]) for stretch in stretches]


def _panel(trial: Trial, names: Sequence[str], high: float, limit: int | None) -> Markup:
    start, stop = trial.samples[0].at, trial.samples[-1].at
    scale = draw.linear(start, stop if stop > start else start + 1)
    series = _series(trial.samples)
    marks: list[str] = [_curves(series, names, start, stop, high)]
    if limit is not None:
        marks.append(draw.across(_height(limit, high), "limit"))
    marks += [
        draw.upright(scale(at), _BOTTOM, _BOTTOM + 8, "request") for at in _answers(trial.samples)
    ]
    marks.append(draw.across(_BOTTOM, "axis"))
    marks.append(el("text", say.size(int(high)), x=draw.percent(draw.LEFT), y=10, class_="tick"))
    for at, anchor in ((start, "start"), (stop, "end")):
        marks.append(_below(f"{at:.1f} s", draw.percent(scale(at)), anchor))
    requests = say.count(trial.samples[-1].requests, "request")
    marks.append(_below(requests, "50%", "middle"))
    text = f"{'; '.join(_told(series))}; {requests} from {start:.1f} s to {stop:.1f} s"
    return join(
        draw.picture(f"Memory over time in trial {trial.n}", text, 144, *marks),
        el("p", text, class_="values"),
    )


def _height(size: float, high: float) -> float:
    """Where a size is drawn, if ``high`` is at the top."""
    return _BOTTOM - (_BOTTOM - _TOP) * size / high


def _curves(
    series: Mapping[str, Sequence[tuple[float, int]]],
    names: Sequence[str],
    start: float,
    stop: float,
    high: float,
) -> Markup:
    """A line for each kind of memory, as wide as the picture gets."""
    span = (stop - start) or 1
    curves = [
        el(
            "polyline",
            points=" ".join(
                f"{1000 * (at - start) / span:.1f},{_height(size, high):.1f}" for at, size in points
            ),
            class_=f"series series-{names.index(name) % 4}",
            vector_effect="non-scaling-stroke",
        )
        for name, points in series.items()
    ]
    return el(
        "svg",
        *curves,
        x=draw.percent(draw.LEFT),
        width=draw.percent(draw.RIGHT - draw.LEFT),
        height=_BOTTOM + 4,
        viewBox=f"0 0 1000 {_BOTTOM + 4}",
        preserveAspectRatio="none",
    )


def _answers(samples: Sequence[Sample]) -> list[float]:
    """When requests were answered, at most :data:`POINTS` of them."""
    times = [
        later.at
        for before, later in itertools.pairwise(samples)
        if later.requests > before.requests
    ]
    return times[:: math.ceil(len(times) / POINTS) or 1]


def _below(text: str, x: str, anchor: str) -> Markup:
    return el("text", text, x=x, y=138, text_anchor=anchor, class_="tick")


def _told(series: Mapping[str, Sequence[tuple[float, int]]]) -> list[str]:
    return [
        f"{name} from {say.size(points[0][1])} to {say.size(points[-1][1])}, at most "
        f"{say.size(max(size for _, size in points))}"
        for name, points in series.items()
    ]
