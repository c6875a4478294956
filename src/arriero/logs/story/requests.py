"""A request for memory that was refused: the allocator, the buffer, and whose it was."""

from __future__ import annotations

import re
from typing import Final

from arriero.base.words import Component, Kind, Phase
from arriero.logs.grammar import MEMORY_WORDS, Event
from arriero.logs.lines import Line
from arriero.logs.story.cause import FAR, GROUP, MEMORY, NEAR, RUNTIME, Cause, size_in
from arriero.logs.story.process import Process

_OF_WEIGHTS: Final = re.compile(
    r"(?:AMX|CPU_(?:REPACK|AARCH64|KLEIDIAI|HBM|RISCV64_SPACEMIT)|\w{1,40}_(?:Split|Mapped))\b"
)
"""Types of buffers that hold weights and nothing else."""


def request(process: Process, event: Event, line: Line) -> None:
    """An allocator refused a request."""
    facts, rule, start = event.facts, event.rule, process.start
    if rule.of_pinned and line.number - start.pinned_line <= NEAR // 2:
        start.pinned_line = -FAR
        return  # why pinned memory was refused
    size, exact = size_in(event)
    cause = start.recent(line)
    if cause is None or not _can_take_request(cause, event, line, size):
        cause = start.add(event, line, Kind.ALLOCATION)
    elif cause.component is Component.GRAPH:
        cause.inferred = False
    cause.more(line)
    cause.fatal = rule.fatal or cause.fatal
    cause.add_size(size, exact)
    cause.family = rule.family
    if "index" in facts:
        cause.index = int(facts["index"])
    if facts.get("where") == "host":
        cause.family = "CPU"
    if "buf" in facts:
        process.name_device(cause, facts["buf"])
    if "limit" in facts:
        cause.kind = Kind.BUFFER_LIMIT
    why = facts.get("why", "")
    if why and not MEMORY_WORDS.search(why) and "unknown" not in why:
        cause.kind = Kind.BACKEND


def _can_take_request(cause: Cause, event: Event, line: Line, size: int | None) -> bool:
    if cause.unowned:
        same = size is None and cause.family == event.rule.family
        return cause.about(size) and (same or not cause.went_on)
    # the logger is asynchronous: the cause may be printed after what it led to
    late = cause.kind in MEMORY and cause.size is None and line.number - cause.last <= 4
    host_only = cause.component is Component.GRAPH
    return late and not cause.went_on and (event.rule.family == "CPU" or not host_only)


def buffer(process: Process, event: Event, line: Line) -> None:
    """ggml names the buffer that it could not allocate."""
    name, rule = event.facts["buf"], event.rule
    size, exact = size_in(event)
    cause = process.start.recent(line)
    chunk = cause is not None and _may_be_chunk(cause, name, size)
    if cause is None or not _can_take_buffer(cause, event, size, chunk=chunk):
        cause = process.start.add(event, line, Kind.ALLOCATION)
    cause.more(line)
    process.name_device(cause, name)
    cause.of_tensors = cause.of_tensors or rule.of_tensors
    if _OF_WEIGHTS.match(name):
        cause.component, cause.phase = Component.WEIGHTS, Phase.LOAD
    if rule.component is not None:
        cause.component = rule.component
        cause.whole = size
        cause.name(line)
    if chunk and not cause.about(size):
        cause.whole = size
    else:
        cause.add_size(size, exact)
    if cause.phase not in RUNTIME:
        cause.phase = rule.phase or cause.phase


def _may_be_chunk(cause: Cause, name: str, whole: int | None) -> bool:
    """Whether the request of ``cause`` can be one piece of a buffer that is cut.

    Vulkan's host buffers are ordinary memory where pinned memory is refused, and cut all the same.
    """
    cut = cause.family in ("Vulkan", "Metal") or name.startswith("Vulkan")
    return cut and cause.size is not None and (whole is None or whole >= cause.size)


def _can_take_buffer(cause: Cause, event: Event, size: int | None, *, chunk: bool) -> bool:
    """Whether the buffer that ggml names is the one that ``cause`` is about."""
    if cause.unowned:
        return cause.about(size) or chunk
    same = cause.component is event.rule.component and cause.kind in MEMORY
    return same and cause.device is None and cause.about(size)


def owner(process: Process, event: Event, line: Line) -> None:
    """Says which component the refused request was for."""
    rule, start = event.rule, process.start
    if rule.phase is Phase.SERVING:
        start.serve()
    cause = start.recent(line, GROUP)
    if cause is not None and cause.kind is rule.kind is Kind.MODEL:
        cause.last = line.number
        return
    if cause is None or not _can_own(cause, event):
        cause = start.add(event, line, rule.kind or Kind.ALLOCATION)
    else:
        if cause.component is None:
            cause.name(line)
        cause.component = rule.component or cause.component
        if cause.phase not in RUNTIME:
            cause.phase = rule.phase or cause.phase
        cause.fatal = cause.fatal if rule.fatal is None else rule.fatal
    cause.owned = True
    if rule.phase is Phase.SERVING and cause.kind is Kind.ALLOCATION:
        cause.kind, cause.phase = Kind.RUNTIME_ALLOCATION, rule.phase
    cause.more(line)
    cause.add_size(*size_in(event))
    name = event.facts.get("buf", "").strip()
    if cause.device is None and name and name not in ("backend", "metal"):
        process.name_device(cause, name)


def _can_own(cause: Cause, event: Event) -> bool:
    """Whether ``event`` says whose request the one of ``cause`` was."""
    rule = event.rule
    if cause.kind not in MEMORY or cause.retried:
        return False
    if cause.component in (None, rule.component) or rule.component is None:
        return True
    # the projector's own graph is allocated like any other
    return rule.component is Component.MMPROJ and cause.component is Component.COMPUTE
