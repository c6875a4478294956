"""Parts of a document that several documents have."""

from __future__ import annotations

from collections.abc import Sequence

from arriero.base.sizes import mib
from arriero.record import Step
from arriero.report.markdown.syntax import code, fence, grid, prose, shell
from arriero.report.view import words as say
from arriero.report.view.diagnosis import CommandView, DiagnosisView
from arriero.report.view.text import printable
from arriero.report.view.trials import Size, Table
from arriero.report.view.verdict import VerdictView


def recommended(facts: CommandView | None) -> list[str]:
    """The command to run, in a block that pastes."""
    if facts is None:
        return []
    return [
        f"### {prose(facts.title.capitalize())}",
        prose(facts.about),
        shell(facts.argv, facts.env),
        *bullets("", facts.facts),
    ]


def trials(table: Table) -> list[str]:
    """Every trial, with a legend."""
    if not table.rows:
        return []
    heads = ["trial", "purpose", *map(code, table.axes), "change"]
    first = len(heads)
    heads += [f"{say.SHORT[part]}" for part in table.components]
    sizes = range(first, len(heads))
    heads += ["headroom", "ready", "served", "first failure"]
    rows = [
        (
            str(row.n),
            prose(printable(row.trial.purpose)),
            *map(prose, row.axes),
            code(row.change) if row.change.startswith("-") else prose(row.change),
            *map(_size, row.sizes),
            "–" if row.trial.headroom is None else mib(row.trial.headroom, 1),
            row.ready,
            row.served,
            prose(row.remark),
        )
        for row in table.rows
    ]
    legend = f"Sizes in {prose(table.unit)}. **bold**: refused. –: not printed or not reached."
    return ["### Trials", grid(heads, rows, right={0, *sizes, sizes.stop}), legend]


def boundaries(facts: DiagnosisView) -> list[str]:
    """Where each variable stops working, and what each unit of it takes."""
    lines = []
    for edge in facts.edges:
        lines.append(f"- {code(edge.flag)}: {prose(edge.sentence)}")
        about = (edge.held, *edge.doubts, *edge.conditions)
        lines += [f"  - {prose(text)}" for text in about if text]
    lines += [f"- {prose(slope)}" for slope in facts.slopes]
    return ["### Boundaries" if facts.edges else "### Slopes", "\n".join(lines)] if lines else []


def bullets(title: str, texts: Sequence[str]) -> list[str]:
    if not texts:
        return []
    return [*([f"### {title}"] if title else []), "\n".join(f"- {prose(text)}" for text in texts)]


def step_table(steps: Sequence[Step]) -> list[str]:
    rows = [
        (
            prose(printable(step.name)),
            f"{step.ok}/{step.sent}",
            code(printable(step.shown_by)) if step.shown_by else "no evidence",
            prose(printable(step.detail)),
        )
        for step in steps
    ]
    return [grid(("step", "ok", "shown by", "detail"), rows, right={1})] if rows else []


def verdict_parts(verdict: VerdictView) -> list[str]:
    parts = [f"**{prose(verdict.word)}**: {prose(verdict.sentence)}"]
    parts += [prose(verdict.sizes)] if verdict.sizes else []
    parts += [fence([verdict.quote])] if verdict.quote else []
    parts += [prose(" ".join(verdict.details))] if verdict.details else []
    return parts


def _size(size: Size) -> str:
    if size.bytes is None:
        return "–"
    return f"**{mib(size.bytes)}**" if size.refused else mib(size.bytes)
