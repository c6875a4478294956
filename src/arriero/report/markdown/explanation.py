"""What logs say, as Markdown."""

from __future__ import annotations

from collections.abc import Iterable

from arriero.base.sizes import mib
from arriero.record import Explanation, Explanations
from arriero.report.markdown.parts import bullets, verdict_parts
from arriero.report.markdown.syntax import code, grid, prose
from arriero.report.view import words as say
from arriero.report.view.explanation import ExplanationView, explanation_view
from arriero.report.view.text import printable


def parts(doc: Explanation | Explanations) -> list[str]:
    """What one log says, or several."""
    several = doc.explanations if isinstance(doc, Explanations) else (doc,)
    return [part for one in several for part in _log(explanation_view(one), "##")]


def _log(facts: ExplanationView, level: str) -> Iterable[str]:
    yield f"{level} {prose(' · '.join(facts.setting))}"
    yield from verdict_parts(facts.verdict)
    if facts.buffers:
        rows = [
            (
                say.SHORT[buffer.component],
                mib(buffer.bytes),
                code(printable(buffer.device)),
                buffer.role.value,
                str(buffer.line),
            )
            for buffer in facts.buffers
        ]
        yield grid(("allocated", "MiB", "on", "of", "log line"), rows, right={1, 4})
    yield from bullets("Known as", facts.known)
    yield from bullets("What to do", facts.advice)
    yield from bullets("", facts.notices)
    for child in facts.children:
        yield from _log(child, level + "#")
