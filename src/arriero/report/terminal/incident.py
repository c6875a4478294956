"""Incidents of a supervised server, for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from arriero.record import Incident, Incidents
from arriero.report.terminal.lines import (
    NARROW,
    Line,
    bullet,
    grid,
    verdict_blocks,
    wrapped,
)
from arriero.report.view.incident import incident_view, outcome_of, what_happened, when
from arriero.report.view.text import cut, printable

Row = tuple[str, str, str, str]


def pool_lines(rows: Sequence[Row], width: int) -> list[Line]:
    """Planned beside taken; on a narrow screen in sentences."""
    if width < NARROW:
        texts = (
            f"{pool}: {taken} of {total}, {planned} planned" for pool, planned, taken, total in rows
        )
        return [line for text in texts for line in bullet(text, width)]
    return grid(("pool", "planned", "taken", "of"), rows, width, right={1, 2})


def every_lines(doc: Incidents, width: int) -> list[Line]:
    """Incidents, one line each; on a narrow screen several, for the ID to stay whole."""
    if not doc.incidents:
        return [Line("no incidents")]
    if width < NARROW:
        return [
            line
            for one in doc.incidents
            for line in (
                Line(cut(f"{printable(one.id)}  {when(one)[:16]}", width), "head"),
                *bullet(what_happened(one), width),
                Line(cut(f"  {outcome_of(one)}", width)),
            )
        ]
    rows = [
        (printable(one.id), when(one)[:16], outcome_of(one), what_happened(one))
        for one in doc.incidents
    ]
    return grid(("incident", "UTC", "then", "what happened"), rows, width)


def one_lines(doc: Incident, width: int) -> list[Line]:
    """What happened, what was done, and the last lines of the log."""
    facts = incident_view(doc)
    lines = [
        *wrapped(" · ".join(facts.setting), width, style="dim"),
        Line(""),
        *(line for block in verdict_blocks(facts.verdict, width) for line in block.lines),
        *(line for fact in facts.facts for line in bullet(fact, width)),
    ]
    if facts.pools:
        lines += [Line(""), *pool_lines(facts.pools, width)]
    if facts.log:
        lines += [Line(""), Line("LAST LOG LINES", "head")]
        lines += [line for text in facts.log for line in wrapped(text, width, style="dim")]
    return [*lines, Line(""), *wrapped(f"incident {printable(doc.id)}", width, style="dim")]
