"""A failure in words: what failed, what it is not, the sizes behind it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from arriero.base.sizes import MIB, mib
from arriero.base.words import Component, Evidence, Kind, Method
from arriero.logs.model import Cpu, Failure, Notice
from arriero.record import Slope
from arriero.report.view import words as say
from arriero.report.view.meanings import meaning
from arriero.report.view.text import printable
from arriero.report.view.words import DURING, LONG, SHORT, listed

_SAME: Final = 16
"""Failures of the same cause that are told one by one."""


def what_failed(failure: Failure) -> str:
    """What failed, as a sentence without its full stop."""
    device = f" on {printable(failure.device)}" if failure.device else ""
    part = LONG[failure.component] if failure.component else ""
    during = f" {DURING[failure.phase]}" if failure.phase else ""
    match failure.kind:
        case Kind.ALLOCATION:
            unmapped = failure.component is Component.WEIGHTS and failure.bytes is None
            verb = "could not be mapped or allocated" if unmapped else "allocation refused"
            name = f"{part}: {verb}" if part else "a buffer of an unknown component was refused"
            return f"{name}{during}" if failure.bytes is not None else f"{name}{device}{during}"
        case Kind.BUFFER_LIMIT:
            return (
                f"{part or 'a buffer'}: above the largest single allocation{device}{during}; "
                "this is not lack of memory"
            )
        case Kind.RUNTIME_ALLOCATION:
            return f"memory ran out{device}{during}" + (f": {part}" if part else "")
        case Kind.CACHE_FULL:
            return meaning(failure.text) or f"the KV cache has no free cells left{during}"
        case Kind.STATE_GROWTH:
            return f"saved state grew beyond its limit{during}: {part or 'host memory'}"
        case Kind.REPROCESSING:
            return "prompts are read again in full: the prompt cache could not be used"
        case Kind.RPC:
            return f"an RPC worker was lost, unreachable or of another version{during}"
        case Kind.BACKEND:
            told = meaning(failure.text) or f"driver or kernel error{device}"
            return f"{told}{during}; the message does not mention memory"
        case Kind.CONFIG:
            return "the engine refuses this combination of options"
        case Kind.MODEL:
            return meaning(failure.text) or "the model file cannot be loaded"
        case Kind.ENVIRONMENT if failure.cpu is not None:
            return f"the engine was compiled for another CPU: {_for_cpu(failure.cpu)}"
        case Kind.ENVIRONMENT:
            told = meaning(failure.text) or "a port, permission, library or limit of the machine"
            return f"{told}{during}"
        case Kind.KILLED:
            return (
                f"killed from outside{during}, without a message "
                "(SIGKILL, as the kernel's OOM killer does)"
            )
        case Kind.HANG:
            return f"the server is alive but makes no progress{during}"
        case Kind.CRASH:
            return meaning(failure.text) or f"crashed{during}; no cause is named"


def _for_cpu(cpu: Cpu) -> str:
    if cpu.lacks:
        return f"this one lacks {printable(listed(cpu.lacks))}"
    built = f" (compiled with {printable(', '.join(cpu.needs))})" if cpu.needs else ""
    return f"it met an instruction that this one does not have{built}"


def failure_short(kind: Kind, component: Component | None, text: str = "") -> str:
    """A failure in a table cell; ``text`` is its line."""
    if kind is Kind.CACHE_FULL and meaning(text):
        return "request too long"
    part = SHORT[component] if component else ""
    return {
        Kind.ALLOCATION: part or "allocation",
        Kind.BUFFER_LIMIT: f"{part} over buffer limit".strip(),
        Kind.RUNTIME_ALLOCATION: f"{part or 'memory'} ran out",
        Kind.CACHE_FULL: "KV cells used up",
        Kind.STATE_GROWTH: f"{part or 'state'} growth",
        Kind.CONFIG: "options refused",
        Kind.MODEL: "model file",
        Kind.RPC: "RPC worker",
    }.get(kind, kind.value)


def sentence_of(failure: Failure) -> str:
    said = what_failed(failure)
    if failure.evidence is Evidence.NAMED or "does not say why" in said:
        return said
    refused = failure.kind in (Kind.ALLOCATION, Kind.BUFFER_LIMIT)
    if refused and failure.component is None:
        return f"{said} (the log lacks the line that says what it was for)"
    return f"{said} (inferred: the log lacks the cause line)"


def details_of(
    failure: Failure, secondary: Iterable[Failure], notices: Iterable[Notice] = ()
) -> tuple[str, ...]:
    """What the failure is not, what to ignore, what is missing."""
    details = []
    if failure.not_this:
        details.append(f"Not {say.listed([printable(what) for what in failure.not_this], 'or')}.")
    if not failure.fatal:
        details.append("The process went on.")
    same = [
        failure_short(other.kind, other.component, other.text)
        + (f" {say.DURING[other.phase]}" if other.phase else "")
        + f" (line {other.line})"
        for other in secondary
    ]
    if same:
        more = [f"{len(same) - _SAME} more"] if len(same) > _SAME else []
        details.append(f"Same cause; ignore these: {say.listed([*same[:_SAME], *more])}.")
    # Of a trial's notices only those that bear on its failure; a log's reader sees all of them.
    bearing = {"sizes_hidden", "size_line_absent", "fit_refused"}
    details += [say.notice(item) for item in notices if item.id in bearing]
    return tuple(details)


def sizes_of(
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


def quote_of(failure: Failure) -> str:
    """The engine's line, where the sentence does not already say all of it."""
    told = failure.kind in (Kind.ALLOCATION, Kind.BUFFER_LIMIT) and failure.bytes is not None
    return "" if told else printable(failure.text).strip()
