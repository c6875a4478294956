"""Three pictures of a diagnosis: memory per trial, boundaries, memory over time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Final

from arriero.base.sizes import mib
from arriero.base.words import Component, LimitKind, Role, TrialOutcome
from arriero.record import Diagnosis, Sample, Trial
from arriero.report import _drawing as draw
from arriero.report import _words as say
from arriero.report._markup import Markup, el, join
from arriero.report._text import printable
from arriero.report._trials import Row, along, pool, refused_bytes, started
from arriero.report.view import DiagnosisView, Edge

SHOWN: Final = 24
"""Trials in the first picture; the table below it has all of them."""
PANELS: Final = 4
LANES: Final = 4
POINTS: Final = 400


# --- memory per trial --------------------------------------------------------------------------


def stacks(facts: DiagnosisView) -> list[Markup]:
    """One bar per trial and device: what was allocated, what was refused, and the limit."""
    doc = facts.doc
    telling = sorted(facts.table.rows, key=lambda row: (row.weight, row.n))[:SHOWN]
    rows = [row for row in facts.table.rows if row in telling]
    devices = dict.fromkeys(pool(buffer.device) for trial in doc.trials for buffer in trial.buffers)
    refusers = {pool(trial.failure.device) for trial in doc.trials if trial.failure}
    ordered = sorted(devices, key=lambda name: (name not in refusers, name))
    return [_stack(doc, rows, device, len(facts.table.rows) - len(rows)) for device in ordered]


def _bound(doc: Diagnosis, device: str) -> tuple[int, str] | None:
    """The line that the bars must stay left of, and its name."""
    limit = doc.baseline.limit
    if device == "host":
        return (limit.bytes, say.limit(limit)) if limit else None
    for known in doc.baseline.devices:
        if known.name == device and known.total:
            return known.total, f"{say.size(known.total)} on {printable(device)}"
    return None


def _peak(doc: Diagnosis, trial: Trial, device: str) -> int | None:
    if device != "host":
        return trial.peak.device.get(device)
    limit = doc.baseline.limit
    if limit is None:
        return trial.peak.anonymous
    spaces = {
        LimitKind.ADDRESS_SPACE: trial.peak.address_space,
        LimitKind.CGROUP: trial.peak.cgroup,
    }
    return spaces[limit.kind]


def _segments(trial: Trial, device: str) -> list[tuple[str, Component, int, bool]]:
    """Name, component, bytes and whether it was refused, in the engine's order."""
    sizes: dict[tuple[Component, Role], int] = {}
    for buffer in trial.buffers:
        if pool(buffer.device) == device:
            key = (buffer.component, buffer.role)
            sizes[key] = sizes.get(key, 0) + buffer.bytes
    segments = [
        (
            say.SHORT[part] + ("" if role in (Role.MAIN, part) else f" ({role.value})"),
            part,
            size,
            False,
        )
        for (part, role), size in sizes.items()
    ]
    refused = refused_bytes(trial)
    failure = trial.failure
    if refused is not None and failure and failure.component and pool(failure.device) == device:
        segments = [segment for segment in segments if segment[1] is not failure.component]
        segments.append((say.SHORT[failure.component], failure.component, refused, True))
    return segments


def _stack(doc: Diagnosis, rows: Sequence[Row], device: str, left_out: int) -> Markup:
    bound = _bound(doc, device)
    sums = [sum(size for *_, size, _ in _segments(row.trial, device)) for row in rows]
    peaks = [_peak(doc, row.trial, device) or 0 for row in rows]
    high = max([*sums, *peaks, bound[0] if bound else 0, 1])
    scale = draw.linear(0, high)
    used = dict.fromkeys(part for row in rows for _, part, *_ in _segments(row.trial, device))
    key = [draw.swatch(f"fill-{part.value}", say.SHORT[part]) for part in used]
    if any(refused for row in rows for *_, refused in _segments(row.trial, device)):
        key.append(draw.swatch("plain", "refused", "refused"))
    if any(peaks):
        key.append(draw.key_mark("peak", _peak_name(doc, device)))
    if bound:
        key.append(draw.limit_key(bound[1]))
    items = [
        el(
            "li",
            _heading(row),
            _bar(doc, row, device, scale, bound),
            el("p", _values(doc, row, device), class_="values"),
        )
        for row in rows
    ]
    note = f" ({say.count(left_out, 'trial')} left out; the table has all)" if left_out else ""
    return el(
        "figure",
        el("figcaption", f"Memory on {device} per trial{note}"),
        el("ul", *key, class_="key"),
        el("ol", *items, class_="bars"),
        draw.axis(scale, draw.size_ticks(high), lambda tick: say.size(int(tick))),
    )


def _heading(row: Row) -> Markup:
    how = " ".join(filter(None, (*_axes_of(row), row.change)))
    ready = {TrialOutcome.SERVED: "served", TrialOutcome.READY: "ready only"}
    state = "invalid" if not row.trial.valid else ready.get(row.trial.outcome, "failed")
    return el(
        "p",
        el("b", f"Trial {row.n}"),
        f" {how} ",
        el("span", state, class_=f"state state-{state.split()[0]}"),
        class_="label",
    )


def _axes_of(row: Row) -> tuple[str, ...]:
    return tuple(
        say.flag_value(flag, new)
        for flag, (_, new) in row.trial.change.items()
        if say.flag_value(flag, new) not in row.change
    )


def _values(doc: Diagnosis, row: Row, device: str) -> str:
    parts = [
        f"{name} {mib(size)}{' refused' if refused else ''}"
        for name, _, size, refused in _segments(row.trial, device)
    ]
    peak = _peak(doc, row.trial, device)
    parts += [f"{_peak_name(doc, device)} {mib(peak)}"] if peak is not None else []
    return " · ".join(parts) + " MiB" if parts else "no sizes were printed"


def _peak_name(doc: Diagnosis, device: str) -> str:
    if device != "host":
        return "peak"
    limit = doc.baseline.limit
    return f"peak {say.LIMIT_KINDS[limit.kind]}" if limit else "peak anonymous memory"


def _bar(
    doc: Diagnosis, row: Row, device: str, scale: draw.Scale, bound: tuple[int, str] | None
) -> Markup:
    shapes: list[Markup] = []
    at = 0
    for name, part, size, refused in _segments(row.trial, device):
        where = {"x": draw.percent(scale(at)), "width": draw.percent(scale(at + size) - scale(at))}
        hint = el("title", f"{name} {mib(size)} MiB{' refused' if refused else ''}")
        shapes.append(el("rect", hint, y=4, height=18, class_=f"fill-{part.value}", **where))
        if refused:
            shapes.append(
                el("rect", y=4, height=18, class_="refused", fill="url(#hatch-refused)", **where)
            )
        at += size
    peak = _peak(doc, row.trial, device)
    if bound:
        shapes.append(draw.upright(scale(bound[0]), 0, 26, "limit"))
    if peak is not None:
        name = _peak_name(doc, device)
        shapes.append(draw.mark(scale(peak), 13, "peak", f"{name} {mib(peak)} MiB"))
    return draw.picture(f"Trial {row.n}", _values(doc, row, device), 26, *shapes)


# --- boundaries --------------------------------------------------------------------------------


def edges(facts: DiagnosisView) -> list[Markup]:
    """One axis per variable: where it serves, where it only starts, where it fails."""
    figures = (
        _edge(facts.doc, edge, flag)
        for edge, flag in zip(facts.edges, facts.doc.boundary, strict=True)
    )
    return [figure for figure in figures if figure is not None]


def _edge(doc: Diagnosis, edge: Edge, flag: str) -> Markup | None:
    boundary = edge.boundary
    lanes: dict[str, list[tuple[int, Trial]]] = {}
    for value, trial in along(flag, boundary, doc):
        if value > 0:
            others = [say.flag_value(f, new) for f, (_, new) in trial.change.items() if f != flag]
            lanes.setdefault(" ".join(others) or "otherwise as given", []).append((value, trial))
    kept = sorted(lanes, key=lambda text: -len(lanes[text]))[:LANES]
    lanes = {text: lane for text, lane in lanes.items() if text in kept}
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
    strips = [
        el("li", el("p", text, class_="label"), _lane(flag, lane, scale))
        for text, lane in lanes.items()
    ]
    outcomes = {_outcome(trial) for lane in lanes.values() for _, trial in lane}
    key = [
        *([draw.swatch("served-zone", "served")] if boundary.served else []),
        *(
            [draw.swatch("ready-zone", "ready, not shown to serve", "maybe")]
            if (boundary.ready or 0) > (boundary.served or 0)
            else []
        ),
        *([draw.swatch("plain", "fails", "refused")] if boundary.fails else []),
        *(
            draw.key_mark(outcome, text)
            for outcome, text in (
                ("served", "trial that served"),
                ("ready", "trial that got ready"),
                ("failed", "trial that failed"),
            )
            if outcome in outcomes
        ),
    ]
    ticks = draw.doublings(low, high) if doubling else [low, float(max(values))]
    return el(
        "figure",
        el(
            "figcaption",
            f"Boundary of {edge.flag}" + (" (doubling scale)" if doubling else ""),
        ),
        el("ul", *key, class_="key"),
        _zones(edge, low, high, scale),
        el("ol", *strips, class_="bars"),
        draw.axis(scale, ticks, lambda tick: f"{round(tick)}"),
    )


def _outcome(trial: Trial) -> str:
    return trial.outcome.value if started(trial) else TrialOutcome.FAILED.value


def _zones(edge: Edge, low: float, high: float, scale: draw.Scale) -> Markup:
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


# --- memory over time --------------------------------------------------------------------------


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
            _heading(row),
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
