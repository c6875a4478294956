"""Memory while loading and serving."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
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
    top, bottom = 16, 116
    samples = trial.samples
    start, stop = samples[0].at, samples[-1].at
    span = (stop - start) or 1
    series = _series(samples)

    def y(size: float) -> float:
        return bottom - (bottom - top) * size / high

    curves = [
        el(
            "polyline",
            points=" ".join(
                f"{1000 * (at - start) / span:.1f},{y(size):.1f}" for at, size in points
            ),
            class_=f"series series-{names.index(name) % 4}",
            vector_effect="non-scaling-stroke",
        )
        for name, points in series.items()
    ]
    sent = [
        later.at
        for before, later in itertools.pairwise(samples)
        if later.requests > before.requests
    ]
    sent = sent[:: math.ceil(len(sent) / POINTS) or 1]
    inner = el(
        "svg",
        *curves,
        x=draw.percent(draw.LEFT),
        width=draw.percent(draw.RIGHT - draw.LEFT),
        height=bottom + 4,
        viewBox=f"0 0 1000 {bottom + 4}",
        preserveAspectRatio="none",
    )
    scale = draw.linear(start, stop if stop > start else start + 1)
    marks: list[str] = [inner]
    if limit is not None:
        marks.append(draw.across(y(limit), "limit"))
    marks += [draw.upright(scale(at), bottom, bottom + 8, "request") for at in sent]
    marks.append(draw.across(bottom, "axis"))
    marks.append(el("text", say.size(int(high)), x=draw.percent(draw.LEFT), y=10, class_="tick"))
    for at, anchor in ((start, "start"), (stop, "end")):
        marks.append(
            el(
                "text",
                f"{at:.1f} s",
                x=draw.percent(scale(at)),
                y=138,
                text_anchor=anchor,
                class_="tick",
            )
        )
    requests = say.count(samples[-1].requests, "request")
    marks.append(el("text", requests, x="50%", y=138, text_anchor="middle", class_="tick"))
    told = [
        f"{name} from {say.size(points[0][1])} to {say.size(points[-1][1])}, at most "
        f"{say.size(max(size for _, size in points))}"
        for name, points in series.items()
    ]
    text = f"{'; '.join(told)}; {requests} from {start:.1f} s to {stop:.1f} s"
    return join(
        draw.picture(f"Memory over time in trial {trial.n}", text, 144, *marks),
        el("p", text, class_="values"),
    )
