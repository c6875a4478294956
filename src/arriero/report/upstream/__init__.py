"""A diagnosis as the text of an issue at llama.cpp."""

from __future__ import annotations

from arriero.base.errors import UsageError
from arriero.record import Diagnosis
from arriero.report.interface import Document, Layout
from arriero.report.upstream.diagnosis import issue


class UpstreamLayout(Layout):
    """The fields of the bug report form; only a diagnosis fills them."""

    name = "upstream"
    suffix = "issue.md"

    def has(self, document: Document) -> bool:
        return isinstance(document, Diagnosis)

    def render(self, document: Document) -> str:
        if not isinstance(document, Diagnosis):
            kind = type(document).__name__.lower()
            raise UsageError(
                f"there is no {self.name} report of a {kind}", hint="try --format markdown"
            )
        return issue(document)
