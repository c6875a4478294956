"""The facts of an incident of a supervised server."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from arriero.base.words import Recovery
from arriero.record import Incident, MemoryUse
from arriero.report.view import words as say
from arriero.report.view.failures import details_of, quote_of, sentence_of, sizes_of
from arriero.report.view.text import printable
from arriero.report.view.verdict import Tone, VerdictView

DONE: Final = {
    Recovery.RESTART: "started again",
    Recovery.SMALLER: "started smaller",
    Recovery.WITHOUT_WORKER: "started without the worker",
    Recovery.GIVE_UP: "given up",
}


@dataclass(frozen=True, kw_only=True)
class IncidentView:
    setting: tuple[str, ...]
    verdict: VerdictView
    facts: tuple[str, ...]
    pools: tuple[tuple[str, str, str, str], ...]
    """Name, planned, taken and size of each."""
    log: tuple[str, ...]
    doc: Incident = field(repr=False)


def incident_view(doc: Incident) -> IncidentView:
    """What happened, what was done about it, what it cost."""
    build = () if doc.build is None else (f"b{doc.build}",)
    up = () if doc.up_s is None else (f"had been up {say.duration(doc.up_s)}",)
    return IncidentView(
        setting=(*build, when(doc), *up),
        verdict=_verdict(doc),
        facts=tuple(_facts(doc)),
        pools=tuple(map(pool_row, doc.memory)),
        log=tuple(map(printable, doc.log)),
        doc=doc,
    )


def when(doc: Incident) -> str:
    return printable(doc.at)[:19].replace("T", " ") + " UTC"


def what_happened(doc: Incident) -> str:
    """In one sentence."""
    return sentence_of(doc.verdict)


def outcome_of(doc: Incident) -> str:
    """What was done, and how long it took; in a few words."""
    if doc.action is None:
        return "being dealt with"
    down = "" if doc.down_s is None else f", down {say.duration(doc.down_s)}"
    return DONE[doc.action] + down


def pool_row(use: MemoryUse) -> tuple[str, str, str, str]:
    """A pool's name, and what is planned, taken and there."""
    figures = (use.planned, use.actual, use.total)
    planned, actual, total = ("?" if value is None else say.size(value) for value in figures)
    return printable(use.pool), planned, actual, total


def _verdict(doc: Incident) -> VerdictView:
    given_up = doc.action is Recovery.GIVE_UP
    ended = doc.signal or ("" if doc.status is None else f"status {doc.status}")
    return VerdictView(
        word="GIVEN UP" if given_up else "RECOVERED" if doc.complete else "LOST",
        tone=Tone.BAD if given_up else Tone.GOOD if doc.complete else Tone.OPEN,
        sentence=f"{sentence_of(doc.verdict)}; {outcome_of(doc)}",
        sizes=sizes_of(doc.verdict, ended=printable(ended)),
        details=details_of(doc.verdict, ()),
        quote=quote_of(doc.verdict),
    )


def _facts(doc: Incident) -> Iterable[str]:
    if doc.change:
        yield f"changed: {printable(doc.change)}"
    if doc.why:
        yield printable(doc.why)
    if doc.lost_context_tokens is not None:
        again = "" if doc.reread_s is None else f", {say.duration(doc.reread_s)} to read again"
        yield f"{say.count(doc.lost_context_tokens, 'token')} of context lost{again}"
    requests = doc.requests
    became = [
        f"{number} {what}"
        for number, what in (
            (requests.replayed, "replayed"),
            (requests.continued, "continued"),
            (requests.error_events, "ended by an error event"),
        )
        if number
    ]
    yield ": ".join(
        filter(None, (f"{say.count(requests.in_flight, 'request')} in flight", ", ".join(became)))
    )
