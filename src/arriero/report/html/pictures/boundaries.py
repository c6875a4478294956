"""Boundaries as axes: where it serves, where it only starts, where it fails."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from arriero.base.words import TrialOutcome
from arriero.record import Boundary, Diagnosis, Trial
from arriero.report.html.markup import Markup, el
from arriero.report.html.pictures import drawing as draw
from arriero.report.view import words as say
from arriero.report.view.boundaries import EdgeView
from arriero.report.view.diagnosis import DiagnosisView
from arriero.report.view.trials import along, started

LANES: Final = 4
_Lanes = dict[str, list[tuple[int, Trial]]]


def boundaries(facts: DiagnosisView) -> list[Markup]:
    """One axis per variable: where it serves, where it only starts, where it fails."""
    figures = (
        _edge(facts.doc, edge, flag)
        for edge, flag in zip(facts.edges, facts.doc.boundary, strict=True)
    )
    return [figure for figure in figures if figure is not None]


def _edge(doc: Diagnosis, edge: EdgeView, flag: str) -> Markup | None:
    boundary = edge.boundary
    lanes = _lanes(doc, boundary, flag)
    values = [value for lane in lanes.values() for value, _ in lane]
    values += [v for v in (boundary.served, boundary.ready, boundary.fails) if v and v > 0]
    if len(set(values)) < 2:
        return None
    low, high = min(values), float(max(values))
    if boundary.fails == high:
        # Room for the zone in which it fails, although nothing beyond was tried.
        high *= 1.1
    doubling = high / low >= 4
    scale = draw.log2(low, high) if doubling else draw.linear(low, high)
    ticks = draw.doublings(low, high) if doubling else [low, float(max(values))]
    strips = [
        el("li", el("p", text, class_="label"), _lane(flag, lane, scale))
        for text, lane in lanes.items()
    ]
    return el(
        "figure",
        el(
            "figcaption",
            f"Boundary of {edge.flag}" + (" (doubling scale)" if doubling else ""),
        ),
        el("ul", *_key(boundary, lanes), class_="key"),
        _zones(edge, low, high, scale),
        el("ol", *strips, class_="bars"),
        draw.axis(scale, ticks, lambda tick: f"{round(tick)}"),
    )


def _lanes(doc: Diagnosis, boundary: Boundary, flag: str) -> _Lanes:
    """The trials along a flag with their values, by what else they changed: the fullest lanes."""
    lanes: _Lanes = {}
    for value, trial in along(flag, boundary, doc):
        if value > 0:
            others = [say.flag_value(f, new) for f, (_, new) in trial.change.items() if f != flag]
            lanes.setdefault(" ".join(others) or "otherwise as given", []).append((value, trial))
    kept = sorted(lanes, key=lambda text: -len(lanes[text]))[:LANES]
    return {text: lane for text, lane in lanes.items() if text in kept}


def _key(boundary: Boundary, lanes: _Lanes) -> list[Markup]:
    """What the colours and marks that are drawn mean."""
    key = []
    if boundary.served:
        key.append(draw.swatch("served-zone", "served"))
    if (boundary.ready or 0) > (boundary.served or 0):
        key.append(draw.swatch("ready-zone", "ready, not shown to serve", "maybe"))
    if boundary.fails:
        key.append(draw.swatch("plain", "fails", "refused"))
    outcomes = {_outcome(trial) for lane in lanes.values() for _, trial in lane}
    for outcome, text in (
        ("served", "trial that served"),
        ("ready", "trial that got ready"),
        ("failed", "trial that failed"),
    ):
        if outcome in outcomes:
            key.append(draw.key_mark(outcome, text))
    return key


def _outcome(trial: Trial) -> str:
    return trial.outcome.value if started(trial) else TrialOutcome.FAILED.value


def _zones(edge: EdgeView, low: float, high: float, scale: draw.Scale) -> Markup:
    boundary = edge.boundary
    served, ready, fails = boundary.served, boundary.ready, boundary.fails
    shapes = []

    def zone(start: float, stop: float, kind: str, hatch: str, words: str) -> None:
        left = scale(max(start, low))
        width = max(scale(min(stop, high)) - left, 0.6)
        where = {"x": draw.percent(left), "width": draw.percent(width)}
        shapes.append(el("rect", el("title", words), y=2, height=20, class_=kind, **where))
        if hatch:
            shapes.append(el("rect", y=2, height=20, fill=f"url(#hatch-{hatch})", **where))

    if served is not None and served >= low:
        zone(low, served, "served-zone", "", f"served up to {served}")
    if ready is not None and ready > (served or low):
        zone(served or low, ready, "ready-zone", "maybe", f"ready up to {ready}")
    if fails is not None and fails >= low:
        zone(fails, high, "plain", "refused", f"fails from {fails}")
        shapes.append(draw.upright(scale(fails), 0, 24, "limit"))
    return draw.picture(f"Boundary of {edge.flag}", edge.sentence, 24, *shapes)


def _lane(flag: str, lane: Sequence[tuple[int, Trial]], scale: draw.Scale) -> Markup:
    shapes, told = [], []
    last, low = -100.0, False
    for value, group in _grouped(lane):
        x = scale(value)
        low = not low if x - last < 7 else False
        last = x
        times = f" ×{len(group)}" if len(group) > 1 else ""
        for trial in group:
            told.append(f"{flag} {value} {_outcome(trial)} (trial {trial.n})")
            shapes.append(draw.mark(x, 26, _outcome(trial), told[-1]))
        shapes.append(
            el(
                "text",
                f"{value}{times}",
                x=draw.percent(x),
                y=47 if low else 13,
                text_anchor=draw.anchor(x),
                class_="tick",
            )
        )
    line = draw.across(26, "lane")
    return draw.picture(f"Trials along {flag}", "; ".join(told), 52, line, *shapes)


def _grouped(lane: Sequence[tuple[int, Trial]]) -> list[tuple[int, list[Trial]]]:
    groups: dict[int, list[Trial]] = {}
    for value, trial in lane:
        groups.setdefault(value, []).append(trial)
    return sorted(groups.items())
