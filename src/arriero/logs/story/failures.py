"""Failures that are complete in themselves, and the lines that say more of them."""

from __future__ import annotations

import re
from typing import Final

from arriero.base.words import Component, Kind, Phase
from arriero.logs.grammar import MEMORY_WORDS, Event, Of
from arriero.logs.lines import Line
from arriero.logs.story.cause import GROUP, MEMORY, MILD, RUNTIME, Cause, size_in
from arriero.logs.story.process import Process

_WHERE: Final = re.compile(r"current device: (?P<index>-?\d{1,9}), in function (?P<function>\w+)")
_POOL_FUNCTIONS: Final = re.compile(r"^(?:alloc|cublas_handle|ggml_cuda_pool\w*)$")
_OURS: Final = re.compile(r"(?i)llama|ggml|rpc|server|main|kobold|python|studio|jan\b|local-?ai")


def is_ours(name: str | None) -> bool:
    """Whether a process that the kernel names can be the server; so can one without a name."""
    return name is None or name.startswith("<unknown") or bool(_OURS.search(name))


def failure(process: Process, event: Event, line: Line) -> None:
    """A failure complete in itself."""
    rule, start = event.rule, process.start
    kind = rule.kind or Kind.CRASH
    cause = start.recent(line)
    if rule.of is Of.CALL:
        _call(process, event, line, cause)
        return
    if rule.of_kernel and not is_ours(event.facts.get("who")):
        if cause is not None and cause.rule.of_kernel:
            start.causes.remove(cause)  # the line before did not say whose it was
        return
    if rule.unready and start.phase in RUNTIME:
        return
    if rule.workers is not None and process.uses_rpc:
        kind = rule.workers
    if kind in MILD:
        start.serve()
        if any(c.kind is kind for c in start.causes):
            return
        cause = None
    if cause is not None and _is_same(process, cause, event, kind):
        _add(cause, event, line, kind)
    else:
        cause = start.add(event, line, kind)
    cause.add_size(*size_in(event))


def _add(cause: Cause, event: Event, line: Line, kind: Kind) -> None:
    """Take a further message about ``cause``."""
    rule = event.rule
    if cause.kind is Kind.BACKEND and kind is Kind.RUNTIME_ALLOCATION and not rule.inferred:
        cause.kind = kind  # the driver says in a later line that it was memory
    if cause.unowned and rule.component is not None:
        cause.component = rule.component
        cause.name(line)
        if rule.component is Component.POOL and cause.phase is None:
            cause.kind = kind
    cause.last = line.number
    cause.fatal = rule.fatal or cause.fatal
    cause.presumed = cause.presumed or rule.presumed


def _is_same(process: Process, cause: Cause, event: Event, kind: Kind) -> bool:
    """Whether a further message is about the failure just before it."""
    rule = event.rule
    probe = process.start.probing or (rule.probed and cause.usual)
    if cause.probe != probe or cause.went_on:
        return False
    if rule.component is Component.GRAPH and kind is Kind.ALLOCATION:
        return cause.unowned and cause.family == "CPU"
    if rule.inferred and kind in (Kind.BACKEND, Kind.RUNTIME_ALLOCATION):
        return cause.kind in (*MEMORY, Kind.BACKEND, Kind.RPC)
    if kind is Kind.RUNTIME_ALLOCATION and (cause.unowned or cause.kind is Kind.BACKEND):
        return True
    if cause.rule.leads is kind:
        return True  # such as a device that is lost for want of memory
    if kind in (Kind.ALLOCATION, Kind.RUNTIME_ALLOCATION):
        return cause.kind in MEMORY and rule.component in (None, cause.component)
    return cause.kind is kind


# --- a call of a card's API -----------------------------------------------------------------------


def _call(process: Process, event: Event, line: Line, cause: Cause | None) -> None:
    # file and line come before or after the words, by era and by luck
    why = event.facts.get("why", "")
    if cause is None or cause.rule.of is not Of.CALL:
        cause = process.start.add(event, line, Kind.BACKEND)
        cause.inferred = not why
    elif why and cause.inferred:
        cause.name(line)
        cause.inferred = False
    cause.last = line.number
    cause.fatal = event.rule.fatal or cause.fatal
    if MEMORY_WORDS.search(why):
        cause.kind = Kind.RUNTIME_ALLOCATION
    if (where := _WHERE.search(why)) is not None:
        _place_call(cause, where["index"], where["function"])


def _place_call(cause: Cause, index: str, function: str) -> None:
    cause.index = int(index)
    if cause.kind is Kind.RUNTIME_ALLOCATION and _POOL_FUNCTIONS.search(function):
        cause.component = Component.POOL


# --- further lines --------------------------------------------------------------------------------


def detail(process: Process, event: Event, line: Line) -> None:
    """A further line of the failure just before."""
    rule, facts = event.rule, event.facts
    recent = process.start.recent(line)
    if recent is None:
        _first(process, event, line)
    elif rule.of is Of.COMMANDS:
        recent.last, recent.inferred = line.number, False
        recent.kind = rule.kind or recent.kind
    elif rule.of is Of.REQUEST:
        recent.last = line.number
        recent.add_size(*size_in(event))
    elif recent.rule.of is Of.CALL:
        recent.last = line.number
        if "index" in facts:
            _place_call(recent, facts["index"], facts["function"])
        elif "asks" in facts and recent.kind is Kind.RUNTIME_ALLOCATION:
            recent.component = Component.POOL


def _first(process: Process, event: Event, line: Line) -> None:
    """A further line of a failure of which the log holds none before."""
    rule = event.rule
    if rule.kind is not None:
        cause = process.start.add(event, line, rule.kind)
        cause.phase = cause.phase or Phase.WARMUP
    elif "asks" in event.facts:
        cause = process.start.add(event, line, Kind.RUNTIME_ALLOCATION)
        cause.family, cause.component = "CUDA", Component.POOL
        cause.fatal = cause.inferred = True


def frame(process: Process, event: Event, line: Line) -> None:
    """A line of a backtrace: where the process was when it died."""
    start, where = process.start, event.rule.to
    start.frames[where] = line.number
    for cause in (*start.deaths[-1:], *start.causes[-1:]):
        if line.number - cause.last <= GROUP:
            cause.last = line.number
            cause.place(where)
