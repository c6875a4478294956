"""The facts of a plan in the order in which people need them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from arriero.record import Plan
from arriero.report.view import words as say
from arriero.report.view.changes import Fix, Reach, fixes_of, reaches_of
from arriero.report.view.context import context_words
from arriero.report.view.failures import sentence_of
from arriero.report.view.pools import PoolView, contents, rooms
from arriero.report.view.text import printable
from arriero.report.view.verdict import Tone, VerdictView


@dataclass(frozen=True, kw_only=True)
class PlanView:
    setting: tuple[str, ...]
    unfinished: str
    verdict: VerdictView
    context: tuple[str, ...]
    pools: tuple[PoolView, ...]
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


def plan_view(doc: Plan) -> PlanView:
    """The facts of a plan, verdict first."""
    best = next((advice for advice in doc.advice if advice.recommended), None)
    fixes, beside = fixes_of(doc)
    copy = best.argv if best and fixes else ()
    wanting = "None of these is enough: use more memory, or a smaller model or quantisation."
    refused = _noted(doc, "refused")
    given = doc.argv if doc.fits is not False and doc.failure is None else ()
    return PlanView(
        setting=say.planned(doc),
        unfinished="" if doc.complete else "INTERRUPTED: changes and frontier are missing.",
        verdict=_verdict(doc),
        context=(*context_words(doc), *_noted(doc, "fit")),
        pools=() if refused else contents(doc),
        reaches=reaches_of(doc),
        notes=tuple(_notes(doc)),
        fixes=fixes,
        beside=beside,
        enough=wanting if fixes and best is None and doc.fits is False else "",
        copy=copy,
        prove=copy or given,
        doc=doc,
    )


def _verdict(doc: Plan) -> VerdictView:
    if refused := _noted(doc, "refused"):
        told = f"{'; '.join(refused)}. Nothing was loaded."
        return VerdictView(word="REFUSED", tone=Tone.BAD, sentence=told)
    if doc.failure is not None:
        told = f"{sentence_of(doc.failure)}. Nothing was loaded."
        return VerdictView(word="CANNOT START", tone=Tone.BAD, sentence=told)
    pools = [one for one in contents(doc) if one.shares or one.fits is False]
    if doc.fits:
        alone = len(pools) == 1
        told = f"on {pools[0].title}: {pools[0].verdict}" if alone else rooms(pools)
        return VerdictView(word="FITS", tone=Tone.GOOD, sentence=told)
    telling = [
        one
        for one in pools
        if one.fits is doc.fits and not (doc.fits is None and one.fits_as_known)
    ]
    told = "; ".join(f"{one.known_by}: {one.verdict}" for one in telling)
    if doc.fits is False:
        return VerdictView(
            word="DOES NOT FIT", tone=Tone.BAD, sentence=f"on {told}. Nothing was loaded."
        )
    if telling or not pools:
        word = _open_word(doc, telling)
        return VerdictView(word=word, tone=Tone.OPEN, sentence=told or rooms(()))
    # A backend's own pools are never known before: that alone is no reason to say nothing.
    left = rooms([one for one in pools if one.fits is None])
    return VerdictView(
        word="FITS AS FAR AS KNOWN",
        tone=Tone.OPEN,
        sentence=f"{left}, without the margin and the backend's own pools, which no plan can know",
    )


def _open_word(doc: Plan, telling: Sequence[PoolView]) -> str:
    """What can be said where not all is known, or not all of it stays."""
    if doc.starts and doc.outgrows:
        return "STARTS, CAN OUTGROW"
    if doc.starts:
        return "STARTS, LITTLE LEFT"
    return "MAY NOT START" if any(one.is_between for one in telling) else "UNKNOWN"


def _noted(doc: Plan, id_: str) -> list[str]:
    return [printable(note.text) for note in doc.notes if note.id == id_]


def _notes(doc: Plan) -> Iterable[str]:
    # What fit changes is told with the context, why it is refused with the verdict.
    yield from (printable(n.text) for n in doc.notes if n.id not in ("refused", "fit"))
    if doc.header:
        requests = say.count(doc.header.requests, "request")
        size = say.size(doc.header.bytes)
        yield f"the model is remote: reading its header took {requests}, {size}"
