"""The facts of a document in the order in which people need them.

Everything that is worked out from a document (which words name a failure, which trials tell most,
whether a product may be claimed) is worked out here, once. Sizes carry their unit; numbers that are
not plainly measured carry their method; what nothing showed is said to be unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

from arriero.base.sizes import MIB, mib
from arriero.base.words import (
    Cost,
    Evidence,
    Kind,
    LimitKind,
    LogOutcome,
    Method,
    TrialOutcome,
)
from arriero.logs.model import Buffer, Failure, Notice
from arriero.record import (
    NOT_KEPT,
    Boundary,
    Diagnosis,
    Explanation,
    Plan,
    Recommendation,
    Slope,
    Step,
    Verification,
)
from arriero.report import _words as say
from arriero.report._text import printable, words
from arriero.report._trials import (
    Table,
    along,
    as_given,
    by_number,
    common_env,
    given_value,
    integer,
    table,
)

_SAME: Final = 16
"""Failures of the same cause that are told one by one."""
_NOT_PLACEMENT: Final = frozenset({Kind.CONFIG, Kind.MODEL, Kind.ENVIRONMENT})

if TYPE_CHECKING:
    from arriero.report._plans import Contents, Fix, Reach


class Tone(Enum):
    """Whether a verdict is good, bad or neither; never the only carrier of that fact."""

    GOOD = "good"
    BAD = "bad"
    OPEN = "open"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A verdict: one word, one sentence, the sizes behind it, and what else supports it."""

    word: str
    tone: Tone
    sentence: str
    sizes: str = ""
    details: tuple[str, ...] = ()
    quote: str = ""
    """The engine's own line, where it says more than the sentence."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """The command to run, what it costs and what is known about it."""

    title: str
    about: str
    verified: bool
    argv: tuple[str, ...]
    env: Mapping[str, str]
    facts: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Edge:
    """One boundary: the main sentence, what doubt there is, and the conditions it holds under."""

    flag: str
    sentence: str
    given_that: str
    """What was held at another value than as given: the least that must stand by the sentence,
    for outputs without room for all of ``held``."""
    held: str
    doubts: tuple[str, ...]
    conditions: tuple[str, ...]
    boundary: Boundary = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class DiagnosisView:
    setting: tuple[str, ...]
    unfinished: str
    finding: Finding
    run: Run | None
    table: Table
    edges: tuple[Edge, ...]
    slopes: tuple[str, ...]
    caveats: tuple[str, ...]
    not_tried: tuple[str, ...]
    effort: str
    doc: Diagnosis = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class ExplanationView:
    setting: tuple[str, ...]
    finding: Finding
    known: tuple[str, ...]
    """Gotchas that the log shows the signs of, each with what to do."""
    advice: tuple[str, ...]
    notices: tuple[str, ...]
    buffers: tuple[Buffer, ...]
    children: tuple[ExplanationView, ...]
    doc: Explanation = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class VerificationView:
    setting: tuple[str, ...]
    finding: Finding
    steps: tuple[Step, ...]
    skipped: tuple[str, ...]
    facts: tuple[str, ...]
    notes: tuple[str, ...]
    effort: str
    doc: Verification = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class PlanView:
    setting: tuple[str, ...]
    unfinished: str
    finding: Finding
    context: tuple[str, ...]
    pools: tuple[Contents, ...]
    reaches: tuple[Reach, ...]
    notes: tuple[str, ...]
    fixes: tuple[Fix, ...]
    beside: tuple[Fix, ...]
    """What is worth changing with any of them, or although it fits."""
    enough: str
    """What to think of the changes where none is recommended; empty where one is."""
    copy: tuple[str, ...]
    """The recommended command; empty where none is needed or none helps."""
    prove: tuple[str, ...]
    """The command to prove by a start: the recommended one, or as given where that may fit."""
    doc: Plan = field(repr=False)


def diagnosis(doc: Diagnosis) -> DiagnosisView:
    """The facts of a diagnosis, verdict first."""
    launches = say.count(doc.launches, "launch", "launches")
    how = "INTERRUPTED" if doc.interrupted else "NOT FINISHED: stopped"
    stopped = f"{how} after {launches}. What is shown holds, the rest is unknown."
    return DiagnosisView(
        setting=say.setting(doc.baseline),
        unfinished="" if doc.complete else stopped,
        finding=_finding(doc),
        run=_run(doc),
        table=table(doc),
        edges=tuple(_edge(flag, edge, doc) for flag, edge in doc.boundary.items()),
        slopes=_slopes(doc.slopes),
        caveats=_caveats(doc),
        not_tried=tuple(map(printable, doc.not_tried)),
        effort=f"{launches}, {say.duration(doc.seconds)}",
        doc=doc,
    )


def explanation(doc: Explanation) -> ExplanationView:
    """The facts of one log; a router's children follow as views of their own."""
    source = "stdin" if doc.source == "-" else printable(doc.source)
    where = f"router child {printable(doc.child)}" if doc.child else source
    style = () if doc.era == "unknown" else (f"log style of {printable(doc.era)}",)
    return ExplanationView(
        setting=(where, say.engine(doc.engine), *style),
        finding=_log_finding(doc),
        known=tuple(map(say.known, doc.known)),
        advice=tuple(map(say.remedy, doc.advice)),
        notices=tuple(map(say.notice, doc.notices)),
        buffers=doc.buffers,
        children=tuple(map(explanation, doc.children)),
        doc=doc,
    )


def verification(doc: Verification) -> VerificationView:
    """The facts of a load on a server: whether it got through, and what shows it."""
    return VerificationView(
        setting=(printable(doc.target), *(say.setting(doc.baseline) if doc.baseline else ())),
        finding=_load_finding(doc),
        steps=doc.steps,
        skipped=tuple(map(printable, doc.skipped)),
        facts=tuple(_load_facts(doc)),
        notes=tuple(map(printable, doc.notes)),
        effort=say.duration(doc.seconds),
        doc=doc,
    )


def plan(doc: Plan) -> PlanView:
    """The facts of a plan, verdict first."""
    from arriero.report import _plans  # late: it knows the planner, of which others need nothing

    best = next((advice for advice in doc.advice if advice.recommended), None)
    fixes, beside = _plans.fixes(doc)
    copy = best.argv if best and fixes else ()
    wanting = "None of these is enough: it takes more memory, or a smaller model or quantisation."
    refused = _noted(doc, "refused")
    given = doc.argv if doc.fits is not False and doc.failure is None else ()
    return PlanView(
        setting=say.planned(doc),
        unfinished="" if doc.complete else "INTERRUPTED: changes and frontier are missing.",
        finding=_plan_finding(doc),
        context=(*_plans.context_words(doc), *_noted(doc, "fit")),
        pools=() if refused else _plans.contents(doc),
        reaches=_plans.reaches(doc),
        notes=tuple(_plan_notes(doc)),
        fixes=fixes,
        beside=beside,
        enough=wanting if fixes and best is None and doc.fits is False else "",
        copy=copy,
        prove=copy or given,
        doc=doc,
    )


def kept(notes: Iterable[str]) -> bool:
    """Whether the history has the record, so that a report can be made of it."""
    return not any(note.startswith(NOT_KEPT) for note in notes)


# --- verdicts ----------------------------------------------------------------------------------


def _finding(doc: Diagnosis) -> Finding:
    if doc.verdict is None:
        return _nothing_failed(doc)
    failure = doc.verdict.failure
    trial = by_number(doc, doc.verdict.trial)
    slots = trial.effective.n_seq_max if trial else integer(given_value("-np", doc))
    tokens = trial.effective.n_ctx if trial else None
    ended = say.signal_name(trial.exit_status) if trial else ""
    details = list(
        _details(failure, trial.secondary if trial else (), trial.notices if trial else ())
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
    return Finding(
        word="FAILED" if failure.fatal else "TROUBLE",
        tone=Tone.BAD,
        sentence=_sentence(failure),
        sizes=_sizes(failure, slots=slots, tokens=tokens, slopes=doc.slopes, ended=ended),
        details=tuple(details),
        quote=_quote(failure),
    )


def _nothing_failed(doc: Diagnosis) -> Finding:
    trial = as_given(doc)
    if trial is None:
        return Finding(
            word="NO VERDICT",
            tone=Tone.OPEN,
            sentence="the command as given was not run to an end; nothing is known about it",
        )
    load = trial.requests
    answered = f"{load.ok} of {load.sent} requests" if load.sent else "no request was sent"
    lasting = (say.lasting(trial.headroom, trial.growth_per_request),)
    match trial.outcome:
        case TrialOutcome.SERVED:
            return Finding(
                word="SERVED",
                tone=Tone.GOOD,
                sentence=f"the command as given starts and served {answered}; nothing failed",
                details=lasting,
            )
        case TrialOutcome.READY:
            return Finding(
                word="READY",
                tone=Tone.OPEN,
                sentence="the command as given starts; that it serves was not shown "
                f"({answered}{' answered' if load.sent else ''})",
                details=lasting,
            )
        case TrialOutcome.FAILED:
            return Finding(
                word="FAILED",
                tone=Tone.BAD,
                sentence=f"the command as given failed (trial {trial.n}); the cause is unknown",
                sizes=say.signal_name(trial.exit_status),
            )


def _log_finding(doc: Explanation) -> Finding:
    if doc.failure is not None:
        return Finding(
            word="FAILED" if doc.failure.fatal else "TROUBLE",
            tone=Tone.BAD,
            sentence=_sentence(doc.failure),
            sizes=_sizes(doc.failure),
            details=_details(doc.failure, doc.secondary),
            # A log is all there is here, so its own line is always shown.
            quote=printable(doc.failure.text).strip(),
        )
    if doc.children:
        failed = sum(child.failure is not None for child in doc.children)
        return Finding(
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
    return Finding(word=word, tone=tone, sentence=sentence)


def _load_finding(doc: Verification) -> Finding:
    load = f"{doc.requests.ok} of {doc.requests.sent} requests answered"
    trial, failure = doc.trial, doc.failure
    if failure is not None:
        return Finding(
            word="FAILED",
            tone=Tone.BAD,
            sentence=f"{_sentence(failure)}; {load}",
            sizes=_sizes(failure, ended=say.signal_name(trial.exit_status) if trial else ""),
            details=_details(
                failure, trial.secondary if trial else (), trial.notices if trial else ()
            ),
            quote=_quote(failure),
        )
    if doc.verified:
        return Finding(word="VERIFIED", tone=Tone.GOOD, sentence=load)
    unshown = sum(step.shown_by is None for step in doc.steps)
    reasons = [
        f"{say.count(number, thing)} {what}"
        for number, thing, what in (
            (doc.requests.failed, "request", "failed"),
            (unshown, "step", "shown by nothing"),
            (len(doc.skipped), "step", "skipped"),
        )
        if number
    ]
    return Finding(
        word="NOT VERIFIED",
        tone=Tone.BAD if doc.requests.failed else Tone.OPEN,
        sentence="; ".join([load, *reasons]),
    )


def _plan_finding(doc: Plan) -> Finding:
    from arriero.report import _plans

    if refused := _noted(doc, "refused"):
        told = f"{'; '.join(refused)}. Nothing was loaded."
        return Finding(word="REFUSED", tone=Tone.BAD, sentence=told)
    if doc.failure is not None:
        told = f"{_sentence(doc.failure)}. Nothing was loaded."
        return Finding(word="CANNOT START", tone=Tone.BAD, sentence=told)
    pools = [one for one in _plans.contents(doc) if one.shares or one.fits is False]
    if doc.fits:
        alone = len(pools) == 1
        told = f"on {pools[0].title}: {pools[0].verdict}" if alone else _plans.rooms(pools)
        return Finding(word="FITS", tone=Tone.GOOD, sentence=told)
    telling = [
        one
        for one in pools
        if one.fits is doc.fits and not (doc.fits is None and one.fits_as_known)
    ]
    told = "; ".join(f"{one.known_by}: {one.verdict}" for one in telling)
    if doc.fits is False:
        return Finding(
            word="DOES NOT FIT", tone=Tone.BAD, sentence=f"on {told}. Nothing was loaded."
        )
    if telling or not pools:
        word = _open_word(doc, telling)
        return Finding(word=word, tone=Tone.OPEN, sentence=told or _plans.rooms(()))
    # A backend's own pools are never known before: that alone is no reason to say nothing.
    left = _plans.rooms([one for one in pools if one.fits is None])
    return Finding(
        word="FITS AS FAR AS KNOWN",
        tone=Tone.OPEN,
        sentence=f"{left}, before margin and the backend's own pools, which no plan knows",
    )


def _open_word(doc: Plan, telling: Sequence[Contents]) -> str:
    """What can be said where not all is known, or not all of it stays."""
    if doc.starts and doc.outgrows:
        return "STARTS, CAN OUTGROW"
    if doc.starts:
        return "STARTS, LITTLE LEFT"
    return "MAY NOT START" if any(one.is_between for one in telling) else "CANNOT BE SAID"


def _noted(doc: Plan, id_: str) -> list[str]:
    return [printable(note.text) for note in doc.notes if note.id == id_]


def _plan_notes(doc: Plan) -> Iterable[str]:
    # What fit changes is told with the context, why it is refused with the verdict.
    yield from (printable(n.text) for n in doc.notes if n.id not in ("refused", "fit"))
    if doc.header:
        requests = say.count(doc.header.requests, "request")
        yield f"the model is elsewhere: its header took {requests}, {say.size(doc.header.bytes)}"


def _sentence(failure: Failure) -> str:
    said = say.what_failed(failure)
    if failure.evidence is Evidence.NAMED or "does not say why" in said:
        return said
    refused = failure.kind in (Kind.ALLOCATION, Kind.BUFFER_LIMIT)
    if refused and failure.component is None:
        return f"{said} (the log lacks the line that says what it was for)"
    return f"{said} (inferred: the log lacks the cause line)"


def _details(
    failure: Failure, secondary: Iterable[Failure], notices: Iterable[Notice] = ()
) -> tuple[str, ...]:
    """What the failure is not, what to ignore, what is missing."""
    details = []
    if failure.not_this:
        details.append(f"Not {say.listed([printable(what) for what in failure.not_this], 'or')}.")
    if not failure.fatal:
        details.append("The process went on.")
    same = [
        say.failure_short(other.kind, other.component, other.text)
        + (f" {say.DURING[other.phase]}" if other.phase else "")
        + f" (line {other.line})"
        for other in secondary
    ]
    if same:
        more = [f"{len(same) - _SAME} more"] if len(same) > _SAME else []
        details.append(f"Same cause, ignore: {say.listed([*same[:_SAME], *more])}.")
    # Of a trial's notices only those that bear on its failure; a log's reader sees all of them.
    bearing = {"sizes_hidden", "size_line_absent", "fit_refused"}
    details += [say.notice(item) for item in notices if item.id in bearing]
    return tuple(details)


def _sizes(
    failure: Failure,
    *,
    slots: int | None = None,
    tokens: int | None = None,
    slopes: Iterable[Slope] = (),
    ended: str = "",
) -> str:
    facts = [f"log line {failure.line}"] if failure.line else []
    if ended and failure.kind is not Kind.KILLED:
        facts.insert(0, f"ended by {ended}")
    if failure.bytes is not None:
        who = printable(failure.device) if failure.device else "the engine"
        verb = "was asked for" if failure.kind is Kind.BUFFER_LIMIT else "refused"
        size = f"{who} {verb} {mib(failure.bytes)} MiB"
        if failure.buffer_bytes not in (None, failure.bytes):
            size += f", a chunk of a buffer of {mib(failure.buffer_bytes or 0)} MiB"
        else:
            size += _product(failure, slots, tokens, slopes)
        facts.insert(0, size)
    return " · ".join(facts)


def _product(
    failure: Failure, slots: int | None, tokens: int | None, slopes: Iterable[Slope]
) -> str:
    """`` = 64 slots × 62.81 MiB``, only where it divides evenly and a measured slope agrees."""
    size = failure.bytes or 0
    for slope in slopes:
        number = {"slot": slots, "token": tokens}.get(slope.per)
        if slope.component is not failure.component or not number or number < 2 or size % number:
            continue
        # A slope comes from sizes printed in MiB with two digits: it is known to half of 0.01 MiB.
        near = abs(size // number - slope.bytes) <= min(MIB / 200, slope.bytes / 50)
        if near and slope.method in (Method.MEASURED, Method.EXACT):
            return f" = {number} {slope.per}s × {say.size(size // number)}"
    return ""


def _quote(failure: Failure) -> str:
    """The engine's line, where the sentence does not already say all of it."""
    told = failure.kind in (Kind.ALLOCATION, Kind.BUFFER_LIMIT) and failure.bytes is not None
    return "" if told else printable(failure.text).strip()


# --- what to run -------------------------------------------------------------------------------


def _run(doc: Diagnosis) -> Run | None:
    advice = doc.recommendation
    if advice is None:
        return None
    paid = [cost.value for cost in advice.costs if cost is not Cost.FREE]
    costs = f"costs {', '.join(paid)}" if paid else "costs nothing" if advice.costs else ""
    changes = ", ".join(map(printable, advice.changes)) or "no change"
    title = "RUN THIS" if advice.verified else "TRY THIS (not verified)"
    if not advice.changes:
        title = "KEEP IT" if advice.verified else "KEEP IT (not verified)"
    return Run(
        title=title,
        about=" · ".join(filter(None, (costs, changes))),
        verified=advice.verified,
        argv=advice.argv,
        env=advice.env,
        facts=tuple(_run_facts(doc, advice)),
    )


def _run_facts(doc: Diagnosis, advice: Recommendation) -> Iterable[str]:
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
        yield "worst case unknown (checkpoints, prompt cache full)"
    else:
        room = f"of {say.size(worst.limit)}" if worst.limit is not None else "of an unknown limit"
        fits = {True: "fits", False: "DOES NOT FIT", None: "unknown whether it fits"}[worst.fits]
        yield (
            f"worst case {say.size(worst.planned)} {room}, {fits} "
            "(planned: checkpoints, prompt cache full)"
        )
    if trial and trial.effective.n_ctx_seq and trial.effective.n_seq_max:
        slots, each = trial.effective.n_seq_max, trial.effective.n_ctx_seq
        if slots > 1 and trial.effective.kv_unified:
            yield f"{slots} slots share {each} tokens of context"
        elif slots > 1:
            yield f"{slots} slots have {each} tokens each; longer prompts: fewer slots or -kvu"
    for reason in advice.skipped:
        yield f"not checked: {printable(reason)}"


# --- boundaries --------------------------------------------------------------------------------


def _edge(flag: str, edge: Boundary, doc: Diagnosis) -> Edge:
    kinds = _other_failures(flag, edge, doc)
    if edge.fails_with:
        kinds.insert(0, say.failure_short(edge.fails_with.kind, edge.fails_with.component))
    fails = "no failure seen" if edge.fails is None else f"fails from {edge.fails}"
    if kinds:
        fails += f" ({', '.join(kinds)})"
    if edge.served is not None and edge.served == edge.ready:
        works = [f"ready and served up to {edge.served}"]
    else:
        works = [
            f"{word} up to {value}" if value is not None else f"{word}: not shown"
            for word, value in (("served", edge.served), ("ready", edge.ready))
        ]
    doubts = [f"repeats disagree from {edge.band[0]} to {edge.band[1]}"] if edge.band else []
    if edge.note:
        doubts.append(printable(edge.note))
    conditions = [f"in steps of {edge.step}"] if edge.step > 1 else []
    other = {
        name: value
        for name, value in edge.held.items()
        if str(given_value(name, doc)) != str(value)
    }
    if edge.trials:
        numbers = [str(n) for n in edge.trials]
        conditions.append(f"trial{'s' * (len(numbers) > 1)} {', '.join(numbers)}")
    return Edge(
        flag=printable(flag),
        sentence=" · ".join([*works, fails]),
        given_that=f"with {_held(other)}" if other else "",
        held=f"held: {_held(edge.held)}" if edge.held else "",
        doubts=tuple(doubts),
        conditions=tuple(conditions),
        boundary=edge,
    )


def _held(values: Mapping[str, object]) -> str:
    return printable(" ".join(say.flag_value(name, value) for name, value in values.items()))


def _other_failures(flag: str, edge: Boundary, doc: Diagnosis) -> list[str]:
    """Other failures along this variable: the one as given is often not the one at the edge."""
    if not any(flag in trial.change for trial in doc.trials):
        return []
    named = edge.fails_with and (edge.fails_with.kind, edge.fails_with.component)
    smallest: dict[str, int] = {}
    for value, trial in along(flag, edge, doc):
        if trial.failure is None or not set(trial.change) <= {flag, *edge.held}:
            continue
        failure = trial.failure
        if trial.outcome is TrialOutcome.FAILED and (failure.kind, failure.component) != named:
            name = say.failure_short(failure.kind, failure.component, failure.text)
            smallest[name] = min(value, smallest.get(name, value))
    return [f"{name} from {value}" for name, value in smallest.items()]


def _slopes(slopes: Iterable[Slope]) -> tuple[str, ...]:
    groups: dict[tuple[str, Method], list[str]] = {}
    for slope in slopes:
        note = f" ({printable(slope.note)})" if slope.note else ""
        text = f"{say.SHORT[slope.component]} {say.size(slope.bytes)}{note}"
        groups.setdefault((slope.per, slope.method), []).append(text)
    return tuple(
        f"per {say.PER[per]}, {method.value}: {', '.join(parts)}"
        for (per, method), parts in groups.items()
    )


def _caveats(doc: Diagnosis) -> tuple[str, ...]:
    notes = [printable(note) for note in doc.notes]
    caveats = []
    bound = doc.baseline.limit
    counts_space = bound is not None and bound.kind is LimitKind.ADDRESS_SPACE
    if counts_space and not any("address space" in note for note in notes):
        caveats.append("The limit is on address space (thread arenas, mapped files), not RAM.")
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


# --- a load ------------------------------------------------------------------------------------


def _load_facts(doc: Verification) -> Iterable[str]:
    yield say.lasting(doc.headroom, doc.growth_per_request)
    speeds = [
        f"{name} {value:.1f} tokens/s"
        for name, value in (("prompt", doc.speed.prompt_tps), ("generation", doc.speed.predict_tps))
        if value is not None
    ]
    yield ", ".join(speeds) if speeds else "speed unknown"
