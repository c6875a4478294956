"""Memory of each trial as a bar: what was allocated, what was refused, and the limit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from arriero.base.buffers import HOST
from arriero.base.sizes import mib
from arriero.base.words import Component, LimitKind, Role
from arriero.record import Diagnosis, Trial
from arriero.report.html.markup import Markup, el
from arriero.report.html.pictures import drawing as draw
from arriero.report.html.pictures.heading import heading
from arriero.report.view import words as say
from arriero.report.view.diagnosis import DiagnosisView
from arriero.report.view.text import printable
from arriero.report.view.trials import Row, refused_bytes

SHOWN: Final = 24
"""Trials in the first picture; the table below it has all of them."""


def memory(facts: DiagnosisView) -> list[Markup]:
    """One bar per trial and device: what was allocated, what was refused, and the limit."""
    doc = facts.doc
    telling = sorted(facts.table.rows, key=lambda row: (row.weight, row.n))[:SHOWN]
    rows = [row for row in facts.table.rows if row in telling]
    devices = dict.fromkeys(
        trial.memory_of(buffer.device) for trial in doc.trials for buffer in trial.buffers
    )
    refusers = {trial.memory_of(trial.failure.device) for trial in doc.trials if trial.failure}
    ordered = sorted(devices, key=lambda name: (name not in refusers, name))
    return [_stack(doc, rows, device, len(facts.table.rows) - len(rows)) for device in ordered]


def _bound(doc: Diagnosis, device: str) -> tuple[int, str] | None:
    """The line that the bars must stay left of, and its name."""
    limit = doc.baseline.limit
    if device == HOST:
        return (limit.bytes, say.limit(limit)) if limit else None
    for known in doc.baseline.devices:
        if known.name == device and known.total:
            return known.total, f"{say.size(known.total)} on {printable(device)}"
    return None


def _peak(doc: Diagnosis, trial: Trial, device: str) -> int | None:
    if device != HOST:
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
        if trial.memory_of(buffer.device) == device:
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
    here = failure is not None and trial.memory_of(failure.device) == device
    if refused is not None and failure and failure.component and here:
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
            heading(row),
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


def _values(doc: Diagnosis, row: Row, device: str) -> str:
    parts = [
        f"{name} {mib(size)}{' refused' if refused else ''}"
        for name, _, size, refused in _segments(row.trial, device)
    ]
    peak = _peak(doc, row.trial, device)
    parts += [f"{_peak_name(doc, device)} {mib(peak)}"] if peak is not None else []
    return " · ".join(parts) + " MiB" if parts else "no sizes were printed"


def _peak_name(doc: Diagnosis, device: str) -> str:
    if device != HOST:
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
