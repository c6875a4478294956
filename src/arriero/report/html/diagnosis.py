"""A diagnosis as a page."""

from __future__ import annotations

from arriero.base.sizes import mib
from arriero.record import Diagnosis
from arriero.report.html.markup import Markup, el, join
from arriero.report.html.page import html_page
from arriero.report.html.parts import (
    bullets,
    grid,
    recommended,
    section,
    step_table,
    verdict_section,
)
from arriero.report.html.pictures.boundaries import boundaries
from arriero.report.html.pictures.memory import memory
from arriero.report.html.pictures.timelines import timelines
from arriero.report.html.setting import setting
from arriero.report.view import words as say
from arriero.report.view.diagnosis import DiagnosisView, diagnosis_view
from arriero.report.view.trials import Size, Table


def page(doc: Diagnosis) -> str:
    """The whole page as text, to be written as UTF-8."""
    facts = diagnosis_view(doc)
    return html_page(
        ("Arriero diagnosis ", el("code", doc.id)),
        facts.setting,
        facts.verdict,
        [
            verdict_section(facts.verdict, facts.unfinished),
            *recommended(facts.recommended),
            *section("Memory", memory(facts)),
            *section("Trials", _trials(facts.table)),
            *section("Boundaries", [*boundaries(facts), *_boundaries(facts)]),
            *section("Over time", timelines(facts)),
            *section("What was sent to the recommended command", _advised_steps(doc)),
            *section("Not tried", bullets(facts.not_tried)),
            *section("Notes", bullets(facts.caveats)),
            *section("Setting", setting(doc.baseline)),
            *section("Logs, last lines", _tails(doc)),
        ],
        f"{facts.effort} · record {doc.id} · {doc.baseline.taken_at}",
    )


def _trials(table: Table) -> list[Markup]:
    if not table.rows:
        return []
    sizes = [say.SHORT[part] for part in table.components]
    before = ["trial", *table.axes, "change", "ready", "served", "first failure"]
    rows = [
        (
            str(row.n),
            *row.axes,
            row.change,
            row.ready,
            row.served,
            row.remark,
            *map(_size, row.sizes),
            "–" if row.trial.headroom is None else mib(row.trial.headroom),
            row.trial.purpose,
        )
        for row in table.rows
    ]
    numbers = range(len(before), len(before) + len(sizes) + 1)
    right = {*range(1 + len(table.axes)), *numbers}
    legend = f"Sizes in {table.unit}. –: not printed or not reached."
    return [
        grid("Every trial", [*before, *sizes, "headroom", "purpose"], rows, right),
        el("p", legend, class_="values"),
    ]


def _size(size: Size) -> str | Markup:
    if size.bytes is None:
        return "–"
    return el("b", f"{mib(size.bytes)} refused") if size.refused else mib(size.bytes)


def _boundaries(facts: DiagnosisView) -> list[Markup]:
    items = [
        el(
            "li",
            el("code", edge.flag),
            f" {edge.sentence}",
            *bullets([text for text in (edge.held, *edge.doubts, *edge.conditions) if text]),
        )
        for edge in facts.edges
    ]
    items += [el("li", slope) for slope in facts.slopes]
    return [el("ul", *items)] if items else []


def _advised_steps(doc: Diagnosis) -> list[Markup]:
    return step_table(doc.recommendation.steps) if doc.recommendation else []


def _tails(doc: Diagnosis) -> list[Markup]:
    return [
        join(el("h3", f"Trial {trial.n}"), el("pre", "\n".join(trial.log_tail)))
        for trial in doc.trials
        if trial.log_tail
    ]
