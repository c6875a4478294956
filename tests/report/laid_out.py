"""Documents in each form, as the commands print and write them."""

from __future__ import annotations

from typing import Any

from arriero.base.words import ReportFormat
from arriero.report.formats import layout_of
from arriero.report.interface import Document
from arriero.report.terminal import Shown, TerminalLayout


def terminal(document: Shown, **options: Any) -> str:
    return TerminalLayout(**options).render(document)


def markdown(document: Document) -> str:
    return layout_of(ReportFormat.MARKDOWN).render(document)


def html(document: Document) -> str:
    return layout_of(ReportFormat.HTML).render(document)


def upstream(document: Document) -> str:
    return layout_of(ReportFormat.UPSTREAM).render(document)
