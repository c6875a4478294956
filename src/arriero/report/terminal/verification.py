"""A load on a server, for a terminal."""

from __future__ import annotations

from arriero.record import Verification, was_kept
from arriero.report.terminal.lines import (
    Line,
    bullet,
    grid,
    paragraph,
    verdict_blocks,
    wrapped,
)
from arriero.report.view.text import printable
from arriero.report.view.verification import verification_view


def lines(doc: Verification, width: int) -> list[Line]:
    """A load on a server and whether it got through it."""
    facts = verification_view(doc)
    rows = [
        (
            printable(step.name),
            f"{step.ok}/{step.sent}",
            printable(" · ".join(filter(None, (step.shown_by or "NO EVIDENCE", step.detail)))),
        )
        for step in facts.steps
    ]
    return [
        *wrapped(" · ".join(facts.setting), width, style="dim"),
        Line(""),
        *(line for block in verdict_blocks(facts.verdict, width) for line in block.lines),
        *(line for fact in facts.facts for line in bullet(fact, width)),
        Line(""),
        *(grid(("step", "ok", "shown by"), rows, width, right={1}) if rows else []),
        *paragraph("SKIPPED", "; ".join(facts.skipped), width),
        *paragraph("NOTES", " ".join(facts.notes), width),
        *wrapped(
            f"{facts.effort} · record {doc.id}" if was_kept(doc.notes) else facts.effort,
            width,
            style="dim",
        ),
    ]
