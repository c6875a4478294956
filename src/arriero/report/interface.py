"""What every form of a report has in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from arriero.record import Diagnosis, Explanation, Explanations, Incident, Plan, Verification

Document = Diagnosis | Explanation | Explanations | Verification | Plan | Incident
"""What there are reports of. A terminal shows more."""


class Layout(ABC):
    """Lays out documents in one form. It redacts nothing: that is done to the document before."""

    name: ClassVar[str]
    """As ``arriero report --format`` has it."""
    suffix: ClassVar[str]
    """How the name of a file in this form ends, without the first dot."""

    def has(self, _document: Document) -> bool:
        """Whether there is such a report of a document."""
        return True

    @abstractmethod
    def render(self, document: Document) -> str:
        """The report, to be written as UTF-8.

        Raises:
            UsageError: There is no such report of this document.
        """
