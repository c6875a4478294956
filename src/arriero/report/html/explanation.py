"""What logs say, as a page."""

from __future__ import annotations

from collections.abc import Iterable

from arriero.base.sizes import mib
from arriero.record import Explanation, Explanations
from arriero.report.html.markup import Markup, el
from arriero.report.html.page import html_page
from arriero.report.html.parts import bullets, grid, section, verdict_section
from arriero.report.view import words as say
from arriero.report.view.explanation import ExplanationView, explanation_view


def page(doc: Explanation | Explanations) -> str:
    """What one log says, or several logs one after the other."""
    several = doc.explanations if isinstance(doc, Explanations) else (doc,)
    logs = [explanation_view(one) for one in several]
    first = logs[0].verdict
    body = [part for facts in logs for part in _log(facts)]
    return html_page(("Arriero explanation",), (), first, body, "")


def _log(facts: ExplanationView) -> Iterable[Markup]:
    yield el("p", " · ".join(facts.setting), class_="setting")
    yield verdict_section(facts.verdict)
    rows = [
        (
            say.SHORT[buffer.component],
            mib(buffer.bytes),
            buffer.device,
            buffer.role.value,
            str(buffer.line),
        )
        for buffer in facts.buffers
    ]
    if rows:
        heads = ("allocated", "MiB", "on", "of", "log line")
        yield grid("Buffers that were allocated", heads, rows, {1, 4})
    yield from section("Known as", bullets(facts.known))
    yield from section("What to do", bullets(facts.advice))
    yield from section("Noticed", bullets(facts.notices))
    for child in facts.children:
        yield from _log(child)
