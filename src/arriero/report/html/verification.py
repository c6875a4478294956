"""A load on a server as a page."""

from __future__ import annotations

from arriero.record import Verification
from arriero.report.html.markup import el
from arriero.report.html.page import html_page
from arriero.report.html.parts import bullets, section, step_table, verdict_section
from arriero.report.html.setting import setting
from arriero.report.view.verification import verification_view


def page(doc: Verification) -> str:
    """A load on a server, step by step."""
    facts = verification_view(doc)
    return html_page(
        ("Arriero verification ", el("code", doc.id)),
        facts.setting,
        facts.verdict,
        [
            verdict_section(facts.verdict),
            *bullets(facts.facts),
            *section("Steps", step_table(facts.steps)),
            *section("Skipped", bullets(facts.skipped)),
            *section("Notes", bullets(facts.notes)),
            *section("Setting", setting(doc.baseline) if doc.baseline else []),
        ],
        f"{facts.effort} · record {doc.id}",
    )
