"""Records as self-contained HTML pages: no network, no script, light and dark, printable.

A page carries a content security policy that allows its own style sheet, by hash, and nothing else:
whatever a model name or a log line holds, it can neither run nor load anything.
"""

from __future__ import annotations

from typing import assert_never

from arriero.record import Diagnosis, Explanation, Explanations, Incident, Plan, Verification
from arriero.report.html import diagnosis, explanation, incident, plan, verification
from arriero.report.interface import Document, Layout


class HtmlLayout(Layout):
    """One page for each document."""

    name = "html"
    suffix = "html"

    def render(self, document: Document) -> str:
        match document:
            case Diagnosis():
                return diagnosis.page(document)
            case Explanation() | Explanations():
                return explanation.page(document)
            case Verification():
                return verification.page(document)
            case Plan():
                return plan.page(document)
            case Incident():
                return incident.page(document)
            case _:
                assert_never(document)
