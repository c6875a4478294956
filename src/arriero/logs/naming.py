"""What to say about a failure: whose memory it was, where, how much, and what it was not."""

from __future__ import annotations

import re
from typing import Final

from arriero.base.sizes import MIB
from arriero.base.words import Component, Evidence, Kind, Phase, Role
from arriero.logs.model import Cpu, Failure
from arriero.logs.story.cause import MEMORY, RUNTIME, Cause
from arriero.logs.story.process import Process
from arriero.logs.story.start import Start

_NOT_SHORT: Final = (
    Kind.BUFFER_LIMIT,
    Kind.CACHE_FULL,
    Kind.REPROCESSING,
    Kind.BACKEND,
    Kind.CONFIG,
    Kind.MODEL,
    Kind.ENVIRONMENT,
)
"""Kinds that rule out that memory was short."""
_ROUNDED: Final = MIB * 6 // 1000
"""Half of the last digit of a figure printed in MiB."""
_CHUNKED: Final = ("Vulkan", "Metal", "MTL", "RPC")
"""Buffer types that may be cut: a message names one piece."""
_STEMS: Final = {
    "CUDA": ("CUDA", "ROCm", "MUSA", "HIP", "CANN"),
    "Metal": ("Metal", "MTL"),
    "OpenCL": ("GPUOpenCL", "OpenCL"),
}
_LOADED: Final = frozenset(
    (Component.WEIGHTS, Component.OUTPUT, Component.KV, Component.RS, Component.COMPUTE)
)
"""What one model and its context allocate."""
_TENSORS: Final = frozenset((Component.WEIGHTS, Component.KV, Component.RS))
"""Those of them whose tensors are allocated together and kept."""


def named(
    process: Process, start: Start, cause: Cause, *, fatal: bool, ruling_out: bool
) -> Failure:
    """The failure that ``cause`` is. ``ruling_out``: whether the log tells what it was not."""
    component, inferred = cause.component, cause.inferred
    if cause.kind in MEMORY and cause.role is not Role.MAIN:
        component = Component.DRAFT if cause.role is Role.DRAFT else Component.MMPROJ
    elif cause.kind in (Kind.ALLOCATION, Kind.BUFFER_LIMIT) and not (component or cause.owned):
        component = _by_exclusion(process, start, cause)
        inferred = True  # the line that names it is missing
    device = _device(process, cause)
    phase = Phase.FIT if cause.probe else cause.phase
    return Failure(
        kind=cause.kind,
        component=component,
        device=device,
        bytes=cause.size,
        buffer_bytes=_whole(start, cause, component, device),
        phase=phase,
        fatal=fatal,
        line=cause.line,
        text=cause.text,
        not_this=_not_this(start, cause, component, phase) if ruling_out else (),
        evidence=Evidence.INFERRED if inferred else Evidence.NAMED,
        cpu=Cpu(needs=start.features) if cause.rule.of_cpu else None,
    )


def _by_exclusion(process: Process, start: Start, cause: Cause) -> Component | None:
    """Whose request it was, if the log rules out all others.

    By the same bytes named elsewhere in the log, and by the order in which a model and its context
    are allocated: weights, output, KV, RS, compute. What does not leave exactly one is null.
    """
    if cause.phase in RUNTIME or start.ready:
        return None
    possible = _possible(start, cause)
    named = _of_these_bytes(process, start, cause)
    if named:
        possible &= named
    return next(iter(possible)) if len(possible) == 1 else None


def _possible(start: Start, cause: Cause) -> frozenset[Component]:
    """What the request can have been for, by what was allocated before it and by who asked."""
    left = _TENSORS if cause.of_tensors else _LOADED
    if Component.COMPUTE in start.seen:
        return frozenset()  # of a draft, of the projector, or asked for once more
    if start.reserving or Component.RS in start.whole:
        return left & {Component.COMPUTE}
    if Component.RS in start.seen:
        return left & {Component.RS, Component.COMPUTE}
    if Component.KV in start.seen:
        after = {Component.KV, Component.RS, Component.OUTPUT, Component.COMPUTE}
        if Component.KV in start.whole and start.recurrent:
            after = {Component.RS}
        return left & after
    if start.seen & {Component.WEIGHTS, Component.OUTPUT}:
        left -= {Component.WEIGHTS}
        return left - {Component.RS} if start.recurrent is False else left
    # sizes are printed once all weights are there
    return left & {Component.WEIGHTS} if start.reading else left


def _of_these_bytes(process: Process, start: Start, cause: Cause) -> frozenset[Component]:
    """Components that the log names with the same bytes: refused elsewhere, or in a dry run."""
    if cause.size is None:
        return frozenset()

    def same(device: str | None, size: int, *, exact: bool) -> bool:
        near = 0 if exact and cause.exact else _ROUNDED
        here = device is None or cause.device is None or device == cause.device
        return here and abs(size - (cause.size or 0)) <= near

    refused: set[Component] = set()
    told: set[Component] = set()
    for one in (*process.ended, start):
        told |= {part for part, device, size in one.measured if same(device, size, exact=False)}
        for other in one.causes:
            if other is cause or other.kind not in MEMORY or other.inferred:
                continue
            if other.component and same(other.device, other.size or 0, exact=other.exact):
                refused.add(other.component)
    return frozenset(refused | told)


def _whole(
    start: Start, cause: Cause, component: Component | None, device: str | None
) -> int | None:
    if cause.whole is not None:
        return cause.whole
    if cause.kind not in MEMORY:
        return None
    if device is not None and not device.startswith(_CHUNKED):
        return cause.size if cause.exact else None
    # a dry run may have printed the size that the real buffer did not live to print
    return start.totals.get(component) if component and component not in start.seen else None


def _device(process: Process, cause: Cause) -> str | None:
    """The device's name, if this log names it: ``device 0`` alone is not a name."""
    if cause.device is not None or cause.family is None:
        return cause.device
    if cause.family == "CPU":
        return "CPU"
    stems = "|".join(_STEMS.get(cause.family, (cause.family,)))
    number = r"\d*" if cause.index is None else str(cause.index)
    named = [d for d in process.devices if re.fullmatch(rf"(?:{stems}){number}", d)]
    return named[0] if len(named) == 1 else None


def _not_this(
    start: Start, cause: Cause, component: Component | None, phase: Phase | None
) -> tuple[str, ...]:
    """What the log rules out: allocated before, or not yet asked for."""
    kind = cause.kind
    out = ["lack of memory"] if kind in _NOT_SHORT else []
    seen = start.seen
    early = (Component.WEIGHTS, Component.KV, Component.RS)
    loaded = phase in (Phase.CONTEXT, *RUNTIME) or bool(seen & set(early))
    refused = kind in (Kind.ALLOCATION, Kind.BUFFER_LIMIT)
    # a cache may have another part
    left = _possible(start, cause) if refused and component is None else frozenset()
    if kind in MEMORY:
        ruled_out = (
            (Component.WEIGHTS, "the weights", loaded),
            (Component.KV, "the KV cache", Component.KV in seen or component is Component.RS),
            (Component.RS, "the recurrent state", Component.RS in seen),
            (
                Component.COMPUTE,
                "the compute buffer",
                Component.COMPUTE in seen or component in early,
            ),
        )
        out += [
            words
            for part, words, holds in ruled_out
            if holds and part is not component and part not in left
        ]
    if kind is not Kind.MODEL and (kind in MEMORY or loaded):
        out += ["the model file", "the tokenizer"]
    return tuple(out)
