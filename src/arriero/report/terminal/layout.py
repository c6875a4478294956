"""Every document as lines of a terminal, at its width, in its colours and encoding."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, TextIO, assert_never

from arriero.record import (
    Check,
    Checks,
    Diagnosis,
    Explanation,
    Explanations,
    GotchaEntry,
    Gotchas,
    History,
    Incident,
    Incidents,
    Plan,
    SkeletonRecord,
    Status,
    Verdicts,
    Verification,
)
from arriero.report.interface import Document, Layout
from arriero.report.terminal.lines import Line, finish

Shown = (
    Document
    | Check
    | Checks
    | GotchaEntry
    | Gotchas
    | Verdicts
    | History
    | SkeletonRecord
    | Status
    | Incidents
)


@dataclass(frozen=True, kw_only=True)
class TerminalLayout(Layout):
    """Lines of at most ``width`` cells; only a command to paste has longer ones."""

    name: ClassVar[str] = "terminal"
    suffix: ClassVar[str] = "txt"
    width: int = 80
    colour: bool = False
    encoding: str = "utf-8"

    @classmethod
    def on(cls, stream: TextIO) -> TerminalLayout:
        """For a stream: 80 columns without colour unless it is a terminal."""
        width, colour = 80, False
        if stream.isatty():
            try:
                width = os.get_terminal_size(stream.fileno()).columns or 80
            except (OSError, ValueError):
                width = 80
            colour = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        return cls(width=max(width, 20), colour=colour, encoding=stream.encoding or "ascii")

    def render(self, document: Shown) -> str:
        lines = _lines(document, self.width)
        return finish(lines, colour=self.colour, encoding=self.encoding)


def _lines(document: Shown, width: int) -> Iterable[Line]:
    """Each document's own module is loaded when one is shown: a check needs none of a diagnosis."""
    match document:
        case Diagnosis():
            from arriero.report.terminal import diagnosis

            return diagnosis.lines(document, width)
        case Explanation() | Explanations():
            from arriero.report.terminal import explanation

            return explanation.lines(document, width)
        case Verification():
            from arriero.report.terminal import verification

            return verification.lines(document, width)
        case Plan():
            from arriero.report.terminal import plan

            return plan.lines(document, width)
        case Check() | Checks():
            from arriero.report.terminal import check

            return check.lines(document, width)
        case Gotchas():
            from arriero.report.terminal import gotchas

            return gotchas.every_lines(document, width)
        case GotchaEntry():
            from arriero.report.terminal import gotchas

            return gotchas.one_lines(document, width)
        case Verdicts():
            from arriero.report.terminal import gotchas

            return gotchas.verdict_lines(document, width)
        case History():
            from arriero.report.terminal import history

            return history.lines(document, width)
        case SkeletonRecord():
            from arriero.report.terminal import skeleton

            return skeleton.lines(document, width)
        case Status():
            from arriero.report.terminal import status

            return status.lines(document, width)
        case Incidents():
            from arriero.report.terminal import incident

            return incident.every_lines(document, width)
        case Incident():
            from arriero.report.terminal import incident

            return incident.one_lines(document, width)
        case _:
            assert_never(document)
