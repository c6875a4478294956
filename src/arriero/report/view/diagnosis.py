"""The facts of a diagnosis in the order in which people need them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from arriero.base.words import Cost, Kind, LimitKind, TrialOutcome
from arriero.record import Diagnosis, Recommendation
from arriero.report.view import words as say
from arriero.report.view.boundaries import EdgeView, edge_view, slope_texts
from arriero.report.view.failures import details_of, quote_of, sentence_of, sizes_of
from arriero.report.view.text import printable, words
from arriero.report.view.trials import (
    Table,
    as_given,
    by_number,
    common_env,
    given_value,
    integer,
    table,
)
from arriero.report.view.verdict import Tone, VerdictView

_NOT_PLACEMENT: Final = frozenset({Kind.CONFIG, Kind.MODEL, Kind.ENVIRONMENT})


@dataclass(frozen=True, kw_only=True)
class CommandView:
    """The command to run, what it costs and what is known about it."""

    title: str
    about: str
    verified: bool
    argv: tuple[str, ...]
    env: Mapping[str, str]
    facts: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class DiagnosisView:
    setting: tuple[str, ...]
    unfinished: str
    verdict: VerdictView
    recommended: CommandView | None
    table: Table
    edges: tuple[EdgeView, ...]
    slopes: tuple[str, ...]
    caveats: tuple[str, ...]
    not_tried: tuple[str, ...]
    effort: str
    doc: Diagnosis = field(repr=False)


def diagnosis_view(doc: Diagnosis) -> DiagnosisView:
    """The facts of a diagnosis, verdict first."""
    launches = say.count(doc.launches, "launch", "launches")
    how = "INTERRUPTED" if doc.interrupted else "NOT FINISHED: stopped"
    stopped = f"{how} after {launches}. What is shown is true; the rest is unknown."
    return DiagnosisView(
        setting=say.setting(doc.baseline),
        unfinished="" if doc.complete else stopped,
        verdict=_verdict(doc),
        recommended=_recommended(doc),
        table=table(doc),
        edges=tuple(edge_view(flag, edge, doc) for flag, edge in doc.boundary.items()),
        slopes=slope_texts(doc.slopes),
        caveats=_caveats(doc),
        not_tried=tuple(map(printable, doc.not_tried)),
        effort=f"{launches}, {say.duration(doc.seconds)}",
        doc=doc,
    )


def _verdict(doc: Diagnosis) -> VerdictView:
    if doc.verdict is None:
        return _nothing_failed(doc)
    failure = doc.verdict.failure
    trial = by_number(doc, doc.verdict.trial)
    slots = trial.effective.n_seq_max if trial else integer(given_value("-np", doc))
    tokens = trial.effective.n_ctx if trial else None
    ended = say.signal_name(trial.exit_status) if trial else ""
    details = list(
        details_of(failure, trial.secondary if trial else (), trial.notices if trial else ())
    )
    if trial is None:
        details.append("Read from a log: the command as given was not run.")
    small = next((t for t in doc.trials if t.valid and t.purpose.startswith("baseline")), None)
    if small is not None and small.outcome is TrialOutcome.FAILED:
        what = (
            "this is not about slots or context."
            if failure.kind in _NOT_PLACEMENT
            else "look at placement (devices, offload, free memory, the model file), not at slots "
            "or context."
        )
        details.append(f"Even the small baseline (trial {small.n}) fails: {what}")
    if failure.kind is Kind.CONFIG:
        details.append("`arriero check -- …` with the same command may know what to change.")
    return VerdictView(
        word="FAILED" if failure.fatal else "TROUBLE",
        tone=Tone.BAD,
        sentence=sentence_of(failure),
        sizes=sizes_of(failure, slots=slots, tokens=tokens, slopes=doc.slopes, ended=ended),
        details=tuple(details),
        quote=quote_of(failure),
    )


def _nothing_failed(doc: Diagnosis) -> VerdictView:
    trial = as_given(doc)
    if trial is None:
        return VerdictView(
            word="NO VERDICT",
            tone=Tone.OPEN,
            sentence="the command as given was not run to the end, so nothing is known about it",
        )
    load = trial.requests
    answered = f"{load.ok} of {load.sent} requests" if load.sent else "no request was sent"
    lasting = (say.lasting(trial.headroom, trial.growth_per_request),)
    match trial.outcome:
        case TrialOutcome.SERVED:
            return VerdictView(
                word="SERVED",
                tone=Tone.GOOD,
                sentence=f"the command as given starts and served {answered}; nothing failed",
                details=lasting,
            )
        case TrialOutcome.READY:
            return VerdictView(
                word="READY",
                tone=Tone.OPEN,
                sentence="the command as given starts; no run showed that it serves "
                f"({answered}{' answered' if load.sent else ''})",
                details=lasting,
            )
        case TrialOutcome.FAILED:
            return VerdictView(
                word="FAILED",
                tone=Tone.BAD,
                sentence=f"the command as given failed (trial {trial.n}); the cause is unknown",
                sizes=say.signal_name(trial.exit_status),
            )


def _recommended(doc: Diagnosis) -> CommandView | None:
    advice = doc.recommendation
    if advice is None:
        return None
    paid = [cost.value for cost in advice.costs if cost is not Cost.FREE]
    costs = f"costs {', '.join(paid)}" if paid else "costs nothing" if advice.costs else ""
    changes = ", ".join(map(printable, advice.changes)) or "no change"
    title = "RUN THIS" if advice.verified else "TRY THIS (not verified)"
    if not advice.changes:
        title = "KEEP IT" if advice.verified else "KEEP IT (not verified)"
    return CommandView(
        title=title,
        about=" · ".join(filter(None, (costs, changes))),
        verified=advice.verified,
        argv=advice.argv,
        env=advice.env,
        facts=tuple(_recommended_facts(doc, advice)),
    )


def _recommended_facts(doc: Diagnosis, advice: Recommendation) -> Iterable[str]:
    trial = by_number(doc, advice.trial)
    if advice.requests.sent:
        grown = trial.growth_per_request if trial else None
        yield (
            f"{'verified: ' if advice.verified else ''}"
            f"served {advice.requests.ok} of {advice.requests.sent} · "
            f"{say.lasting(advice.headroom, grown)}"
        )
    else:
        yield "no request was sent to it"
    worst = advice.worst_case
    if worst.planned is None:
        yield "worst case unknown (all caches full)"
    else:
        room = f"of {say.size(worst.limit)}" if worst.limit is not None else "of an unknown limit"
        fits = {True: "fits", False: "DOES NOT FIT", None: "unknown whether it fits"}[worst.fits]
        yield f"worst case {say.size(worst.planned)} {room}, {fits} (planned, all caches full)"
    if trial and trial.effective.n_ctx_seq and trial.effective.n_seq_max:
        slots, each = trial.effective.n_seq_max, trial.effective.n_ctx_seq
        if slots > 1 and trial.effective.kv_unified:
            yield f"{slots} slots share {each} tokens of context"
        elif slots > 1:
            yield f"{slots} slots have {each} tokens each; longer prompts: fewer slots or -kvu"
    for reason in advice.skipped:
        yield f"not checked: {printable(reason)}"


def _caveats(doc: Diagnosis) -> tuple[str, ...]:
    notes = [printable(note) for note in doc.notes]
    caveats = []
    bound = doc.baseline.limit
    counts_space = bound is not None and bound.kind is LimitKind.ADDRESS_SPACE
    if counts_space and not any("address space" in note for note in notes):
        caveats.append(
            "The limit counts address space (thread arenas and mapped files too), not RAM."
        )
    common = common_env(doc)
    if common:
        lacking = doc.recommendation and not common.items() <= doc.recommendation.env.items()
        caveats.append(
            f"Trials ran with {' '.join(words((), common))}"
            + ("; the command above does not." if lacking else ".")
        )
    held = [
        f"{printable(holder.name)} (pid {holder.pid}) held "
        f"{'an unknown amount' if holder.bytes is None else say.size(holder.bytes)} of "
        f"{printable(holder.device)}"
        for holder in doc.baseline.holders
    ]
    if held:
        caveats.append(f"Before the first trial {say.listed(held)}.")
    return (*caveats, *notes)
