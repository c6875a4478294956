"""The facts of a load on a server."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from arriero.record import Step, Verification
from arriero.report.view import words as say
from arriero.report.view.failures import details_of, quote_of, sentence_of, sizes_of
from arriero.report.view.text import printable
from arriero.report.view.verdict import Tone, VerdictView


@dataclass(frozen=True, kw_only=True)
class VerificationView:
    setting: tuple[str, ...]
    verdict: VerdictView
    steps: tuple[Step, ...]
    skipped: tuple[str, ...]
    facts: tuple[str, ...]
    notes: tuple[str, ...]
    effort: str
    doc: Verification = field(repr=False)


def verification_view(doc: Verification) -> VerificationView:
    """The facts of a load on a server: whether it got through, and what shows it."""
    return VerificationView(
        setting=(printable(doc.target), *(say.setting(doc.baseline) if doc.baseline else ())),
        verdict=_verdict(doc),
        steps=doc.steps,
        skipped=tuple(map(printable, doc.skipped)),
        facts=tuple(_load_facts(doc)),
        notes=tuple(map(printable, doc.notes)),
        effort=say.duration(doc.seconds),
        doc=doc,
    )


def _verdict(doc: Verification) -> VerdictView:
    load = f"{doc.requests.ok} of {doc.requests.sent} requests answered"
    trial, failure = doc.trial, doc.failure
    if failure is not None:
        return VerdictView(
            word="FAILED",
            tone=Tone.BAD,
            sentence=f"{sentence_of(failure)}; {load}",
            sizes=sizes_of(failure, ended=say.signal_name(trial.exit_status) if trial else ""),
            details=details_of(
                failure, trial.secondary if trial else (), trial.notices if trial else ()
            ),
            quote=quote_of(failure),
        )
    if doc.verified:
        return VerdictView(word="VERIFIED", tone=Tone.GOOD, sentence=load)
    unshown = sum(step.shown_by is None for step in doc.steps)
    reasons = [
        f"{say.count(number, thing)} {what}"
        for number, thing, what in (
            (doc.requests.failed, "request", "failed"),
            (unshown, "step", "without evidence"),
            (len(doc.skipped), "step", "skipped"),
        )
        if number
    ]
    return VerdictView(
        word="NOT VERIFIED",
        tone=Tone.BAD if doc.requests.failed else Tone.OPEN,
        sentence="; ".join([load, *reasons]),
    )


def _load_facts(doc: Verification) -> Iterable[str]:
    yield say.lasting(doc.headroom, doc.growth_per_request)
    speeds = [
        f"{name} {value:.1f} tokens/s"
        for name, value in (("prompt", doc.speed.prompt_tps), ("generation", doc.speed.predict_tps))
        if value is not None
    ]
    yield ", ".join(speeds) if speeds else "speed unknown"
