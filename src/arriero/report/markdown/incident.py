"""An incident as Markdown."""

from __future__ import annotations

from arriero.record import Incident
from arriero.report.markdown.parts import bullets, verdict_parts
from arriero.report.markdown.syntax import fence, grid, prose, shell
from arriero.report.view.incident import incident_view


def parts(doc: Incident) -> list[str]:
    """What happened, what was done, and the last lines of the log."""
    facts = incident_view(doc)
    heads = ("pool", "planned", "taken", "of")
    return [
        f"## Arriero incident {prose(doc.id)}",
        prose(" · ".join(facts.setting)),
        *verdict_parts(facts.verdict),
        *bullets("", facts.facts),
        *([grid(heads, facts.pools, right={1, 2, 3})] if facts.pools else []),
        *([shell(doc.argv, {})] if doc.argv else []),
        *(["### Last lines of the log", fence(facts.log)] if facts.log else []),
    ]
