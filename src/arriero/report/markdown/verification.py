"""A load on a server as Markdown."""

from __future__ import annotations

from arriero.record import Verification
from arriero.report.markdown.parts import bullets, step_table, verdict_parts
from arriero.report.markdown.setting import setting
from arriero.report.markdown.syntax import prose
from arriero.report.view.verification import verification_view


def parts(doc: Verification) -> list[str]:
    """A load on a server, step by step."""
    facts = verification_view(doc)
    return [
        f"## Arriero verification {prose(doc.id)}",
        prose(" · ".join(facts.setting)),
        *verdict_parts(facts.verdict),
        *bullets("", facts.facts),
        *step_table(facts.steps),
        *bullets("Skipped", facts.skipped),
        *bullets("Notes", facts.notes),
        *(setting(doc.baseline) if doc.baseline else []),
        prose(f"{facts.effort}; record {doc.id}"),
    ]
