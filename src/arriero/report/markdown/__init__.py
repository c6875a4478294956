"""Records as GitHub-flavoured Markdown: complete, and safe to paste on GitHub."""

from __future__ import annotations

from typing import assert_never

from arriero.record import Diagnosis, Explanation, Explanations, Incident, Plan, Verification
from arriero.report.interface import Document, Layout
from arriero.report.markdown import diagnosis, explanation, incident, plan, verification
from arriero.report.markdown.syntax import prose
from arriero.report.view.words import LEFT_OUT


class MarkdownLayout(Layout):
    """Parts with an empty line between them; the last one says what is left out."""

    name = "markdown"
    suffix = "md"

    def render(self, document: Document) -> str:
        return "\n\n".join([*filter(None, _parts(document)), prose(LEFT_OUT)]) + "\n"


def _parts(document: Document) -> list[str]:
    match document:
        case Diagnosis():
            return diagnosis.parts(document)
        case Explanation() | Explanations():
            return explanation.parts(document)
        case Verification():
            return verification.parts(document)
        case Plan():
            return plan.parts(document)
        case Incident():
            return incident.parts(document)
        case _:
            assert_never(document)
