"""The facts of one log."""

from __future__ import annotations

from dataclasses import dataclass, field

from arriero.base.words import LogOutcome
from arriero.logs.model import Buffer
from arriero.record import Explanation
from arriero.report.view import words as say
from arriero.report.view.failures import details_of, sentence_of, sizes_of
from arriero.report.view.text import printable
from arriero.report.view.verdict import Tone, VerdictView


@dataclass(frozen=True, kw_only=True)
class ExplanationView:
    setting: tuple[str, ...]
    verdict: VerdictView
    known: tuple[str, ...]
    """Gotchas that the log shows the signs of, each with what to do."""
    advice: tuple[str, ...]
    notices: tuple[str, ...]
    buffers: tuple[Buffer, ...]
    children: tuple[ExplanationView, ...]
    doc: Explanation = field(repr=False)


def explanation_view(doc: Explanation) -> ExplanationView:
    """The facts of one log; a router's children follow as views of their own."""
    source = "stdin" if doc.source == "-" else printable(doc.source)
    where = f"router child {printable(doc.child)}" if doc.child else source
    style = () if doc.era == "unknown" else (f"log style of {printable(doc.era)}",)
    return ExplanationView(
        setting=(where, say.engine(doc.engine), *style),
        verdict=_verdict(doc),
        known=tuple(map(say.known, doc.known)),
        advice=tuple(map(say.remedy, doc.advice)),
        notices=tuple(map(say.notice, doc.notices)),
        buffers=doc.buffers,
        children=tuple(map(explanation_view, doc.children)),
        doc=doc,
    )


def _verdict(doc: Explanation) -> VerdictView:
    if doc.failure is not None:
        return VerdictView(
            word="FAILED" if doc.failure.fatal else "TROUBLE",
            tone=Tone.BAD,
            sentence=sentence_of(doc.failure),
            sizes=sizes_of(doc.failure),
            details=details_of(doc.failure, doc.secondary),
            # A log is all there is here, so its own line is always shown.
            quote=printable(doc.failure.text).strip(),
        )
    if doc.children:
        failed = sum(child.failure is not None for child in doc.children)
        return VerdictView(
            word="ROUTER",
            tone=Tone.BAD if failed else Tone.GOOD,
            sentence=f"{say.count(len(doc.children), 'child', 'children')}, {failed} of them with "
            "a failure",
        )
    word, tone, sentence = {
        LogOutcome.STARTED: ("STARTED", Tone.GOOD, "the server started; this log has no failure"),
        LogOutcome.EXITED: ("EXITED", Tone.GOOD, "the server ended; this log has no failure"),
        LogOutcome.FAILED: ("FAILED", Tone.BAD, "the start failed; this log names no cause"),
        LogOutcome.UNKNOWN: (
            "NO VERDICT",
            Tone.OPEN,
            "this log has no failure and does not show whether the server started",
        ),
    }[doc.outcome]
    return VerdictView(word=word, tone=tone, sentence=sentence)
