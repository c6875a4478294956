"""An incident as a page."""

from __future__ import annotations

from arriero.record import Incident
from arriero.report.html.markup import el
from arriero.report.html.page import html_page
from arriero.report.html.parts import bullets, grid, section, shell, verdict_section
from arriero.report.view.incident import incident_view


def page(doc: Incident) -> str:
    """What happened, what was done, and the last lines of the log."""
    facts = incident_view(doc)
    heads = ("pool", "planned", "taken", "of")
    pools = [grid("Memory", heads, facts.pools, {1, 2, 3})] if facts.pools else []
    return html_page(
        ("Arriero incident ", el("code", doc.id)),
        facts.setting,
        facts.verdict,
        [
            verdict_section(facts.verdict),
            *bullets(facts.facts),
            *section("Memory when it was last seen alive", pools),
            *section("Command", [shell(doc.argv, {})] if doc.argv else []),
            *section(
                "Last lines of the log", [el("pre", "\n".join(facts.log))] if facts.log else []
            ),
        ],
        f"incident {doc.id}",
    )
