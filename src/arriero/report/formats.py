"""The forms of a report by the words that choose them."""

from __future__ import annotations

from typing import assert_never

from arriero.base.words import ReportFormat
from arriero.report.interface import Layout


def layout_of(form: ReportFormat) -> Layout:
    """What lays out documents in a form."""
    match form:
        case ReportFormat.MARKDOWN:
            from arriero.report.markdown import MarkdownLayout

            return MarkdownLayout()
        case ReportFormat.HTML:
            from arriero.report.html import HtmlLayout

            return HtmlLayout()
        case ReportFormat.UPSTREAM:
            from arriero.report.upstream import UpstreamLayout

            return UpstreamLayout()
        case _:
            assert_never(form)
