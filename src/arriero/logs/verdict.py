"""From the causes of a start to its failure: which came first, whether it ended the start, what it
was not."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from arriero.base.words import Component, Evidence, Kind, LogOutcome, Phase, Role
from arriero.logs.grammar import STAMP_ERA, Act, By, Rule
from arriero.logs.model import Cpu, Effective, Failure, Notice, Reading
from arriero.logs.story import (
    FAR,
    KEEP,
    MEMORY,
    MIB,
    MILD,
    NEAR,
    RUNTIME,
    Cause,
    Start,
    Story,
)

_DEADLY: Final = (4, 5, 6, 7, 8, 9, 11, 31)
_NO_LINE: Final = Rule(
    "exit status", "", re.compile(r"(?!)"), Act.DEATH, kind=Kind.CRASH, inferred=True
)
"""What a death says that only the exit status shows."""
_SIGNALS: Final = {
    4: replace(_NO_LINE, kind=Kind.ENVIRONMENT, inferred=False, of_cpu=True),
    9: replace(_NO_LINE, kind=Kind.KILLED),
}
"""The same of signals that tell more than that it died."""
_GROWN: Final = 1024 * MIB
"""Saved state from which on a kill is put down to its growth."""
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


def read(story: Story, exit_status: int | None = None) -> Reading:
    """What a process's lines say. ``exit_status`` as ``subprocess`` or a shell gives it."""
    story = story.settled(sure=_signal(exit_status) in _DEADLY)
    start = story.start
    failure, secondary = judge(story, start, exit_status)
    unfinished = failure is None and not (start.ready or start.served or start.exited)
    if unfinished and story.ended:
        # the log is cut in the middle of another try: the try that ended is the answer
        start = story.ended[0]
        failure, secondary = judge(story, start, None)
    elif story.ended:
        earlier, more = judge(story, story.ended[0], None)
        secondary = (*(() if earlier is None else (earlier,)), *more, *secondary)
    return Reading(
        era=_era(story),
        child=story.child,
        engine=story.engine,
        outcome=_outcome(start, failure, exit_status),
        failure=failure,
        secondary=secondary[:KEEP],
        buffers=tuple(start.buffers),
        notices=(*start.notices, *_derived(story, start, failure)),
        effective=effective(start),
    )


def judge(
    story: Story, start: Start, exit_status: int | None
) -> tuple[Failure | None, tuple[Failure, ...]]:
    """The failure of one start, and what is secondary to it, in the order of the log."""
    deaths = [*start.deaths, *_unlogged_death(story, start, exit_status)]
    probes = [c for c in start.causes if c.probe]
    if start.probing and probes and (deaths or probes[-1].fatal):
        probes.pop()  # it did not outlive the probe
    real = [c for c in start.causes if c not in probes and not _made_up_for(c)]
    fatal = [c for c in real if _ended_it(c, start, deaths)]
    primary = fatal[0] if fatal else None
    if primary is None and (deaths or start.end is not None) and _is_asked_again(start, probes):
        primary = probes.pop()
        primary.probe, primary.inferred, primary.fatal = False, True, True
    if primary is None and deaths and not _after_the_end(start, deaths[0]):
        primary = _of_death(story, start, deaths[0])
    if primary is None and start.end is not None:
        primary = next((c for c in real if c.kind not in MILD), None) or _of_end(start.end)
    if primary is None:
        primary = min(real, key=_weight, default=None)
    rest = [c for c in (*real, *probes, *deaths) if c is not primary]
    if primary is not None:
        # a death that only the exit status shows is put at the last line: it says no more
        again = [c for c in rest if c.line == primary.line and c.kind is Kind.CRASH]
        rest = [c for c in rest if c not in again]
        if primary.kind in (Kind.RPC, Kind.CRASH) and primary.component is None and again:
            primary = replace(primary, component=again[0].component)
    if start.probing:
        probes = [c for c in probes if c is not start.causes[-1]]  # it may yet die of this one
    outlived = {id(c) for c in probes}
    return (
        None if primary is None else _finish(story, start, primary, deaths),
        tuple(
            _finish(story, start, c, deaths, outlived=id(c) in outlived)
            for c in sorted(rest, key=lambda c: c.line)
        ),
    )


def _made_up_for(cause: Cause) -> bool:
    """Whether what could not be fetched was there already: a model was loaded all the same."""
    return cause.rule.by is By.NETWORK and cause.went_on


def _is_asked_again(start: Start, probes: list[Cause]) -> bool:
    """Whether a start that died without a word died of what its dry run had been refused.

    It asks for the same with the same options, so its own line is what was lost, unless it came
    past that point.
    """
    last = probes[-1] if probes else None
    if last is None or last.normal or last.kind in MILD or start.ready or start.served:
        return False
    context = {Component.OUTPUT, Component.KV, Component.RS, Component.COMPUTE}
    return not start.seen & ({last.component} if last.component else context)


def effective(start: Start) -> Effective:
    """The values that the engine said it runs with."""

    def whole(name: str) -> int | None:
        return int(start.values[name]) if name in start.values else None

    unified = start.values.get("kv_unified")
    return Effective(
        n_ctx=whole("n_ctx"),
        n_ctx_seq=whole("n_ctx_seq"),
        n_seq_max=whole("n_seq_max"),
        n_batch=whole("n_batch"),
        n_ubatch=whole("n_ubatch"),
        kv_unified=None if unified is None else unified == "true",
        n_rs_seq=whole("n_rs_seq"),
        n_gpu_layers=whole("n_gpu_layers"),
        flash_attn=start.values.get("flash_attn"),
    )


# --- which one ----------------------------------------------------------------------------------


def _weight(cause: Cause) -> int:
    """Among failures that the process outlived, those that hurt less come last."""
    order = (Kind.CACHE_FULL, Kind.STATE_GROWTH, Kind.REPROCESSING)
    return order.index(cause.kind) + 1 if cause.kind in order else 0


def _signal(exit_status: int | None) -> int | None:
    if exit_status is None:
        return None
    return -exit_status if exit_status < 0 else exit_status - 128


def _unlogged_death(story: Story, start: Start, exit_status: int | None) -> list[Cause]:
    """The death that only the exit status shows."""
    signal = _signal(exit_status)
    if signal not in _DEADLY or start.deaths:
        return []
    saving = story.last.number - start.saving_line <= NEAR
    said = _SIGNALS.get(signal, _NO_LINE)
    return [
        Cause(
            said.kind or Kind.CRASH,
            said,
            story.last.number,
            story.last.text or f"ended by signal {signal}",
            story.last.number,
            component=Component.PROMPT_CACHE if saving and said.kind is Kind.CRASH else None,
            phase=Phase.FIT if start.probing else start.phase,
            fatal=True,
            inferred=said.inferred,
        )
    ]


def _after_the_end(start: Start, death: Cause) -> bool:
    """Whether it is the crash of a start that had failed already: its error path is at fault."""
    return start.end is not None and death.kind is Kind.CRASH and start.end.line < death.line


def _of_death(story: Story, start: Start, death: Cause) -> Cause:
    """A death without a cause in the log; what it was doing may tell."""
    if death.kind is Kind.KILLED and start.saved + start.checkpoints >= _GROWN:
        death.kind, death.inferred = Kind.STATE_GROWTH, True
        of_prompts = start.saved >= start.checkpoints
        death.size = max(start.saved, start.checkpoints)
        death.component = Component.PROMPT_CACHE if of_prompts else Component.CHECKPOINTS
    elif death.kind is Kind.CRASH and start.worker and death.rule.aborts:
        death.kind = Kind.RPC  # a worker does nothing but what a client asks
    elif death.kind is Kind.CRASH and death.component and story.uses_rpc:
        death.kind, death.inferred = Kind.RPC, True
    return death


def _of_end(end: Cause) -> Cause:
    """A start that ended without a word on why: a context can fail for many reasons."""
    end.component = Component.DRAFT if end.role is Role.DRAFT else None
    end.fatal = True
    return end


def _ended_it(cause: Cause, start: Start, deaths: list[Cause]) -> bool:
    if cause.kind in MILD:
        return bool(cause.fatal)
    if cause.fatal is True:
        return True
    # two threads log out of order, the kernel does not
    before = 0 if cause.rule.of_kernel else NEAR
    if any(cause.line - before <= death.line <= cause.last + FAR for death in deaths):
        return True
    if cause.fatal is False or cause.went_on:
        return False
    if cause.retried:
        again = any(c.line > cause.line and c.kind in MEMORY for c in start.causes)
        return again or start.end is not None
    if cause.presumed or cause.kind in (Kind.ALLOCATION, Kind.BUFFER_LIMIT, Kind.MODEL):
        return cause.rule.presumed is not False or start.end is not None
    return start.end is not None or (cause.kind is Kind.ENVIRONMENT and not start.served)


# --- what to say about it -----------------------------------------------------------------------


def _finish(
    story: Story, start: Start, cause: Cause, deaths: list[Cause], *, outlived: bool = False
) -> Failure:
    component, inferred = cause.component, cause.inferred
    if cause.kind in MEMORY and cause.role is not Role.MAIN:
        component = Component.DRAFT if cause.role is Role.DRAFT else Component.MMPROJ
    elif cause.kind in (Kind.ALLOCATION, Kind.BUFFER_LIMIT) and not (component or cause.owned):
        component = _by_exclusion(story, start, cause)
        inferred = True  # the line that names it is missing
    device = _device(story, cause)
    phase = Phase.FIT if cause.probe else cause.phase
    ended = bool(cause.fatal) if cause in deaths else _ended_it(cause, start, deaths)
    return Failure(
        kind=cause.kind,
        component=component,
        device=device,
        bytes=cause.size,
        buffer_bytes=_whole(start, cause, component, device),
        phase=phase,
        fatal=ended and not outlived,
        line=cause.line,
        text=cause.text,
        not_this=() if cause is start.end else _not_this(start, cause, component, phase),
        evidence=Evidence.INFERRED if inferred else Evidence.NAMED,
        cpu=Cpu(needs=start.features) if cause.rule.of_cpu else None,
    )


_LOADED: Final = frozenset(
    (Component.WEIGHTS, Component.OUTPUT, Component.KV, Component.RS, Component.COMPUTE)
)
"""What one model and its context allocate."""
_TENSORS: Final = frozenset((Component.WEIGHTS, Component.KV, Component.RS))
"""Those of them whose tensors are allocated together and kept."""


def _by_exclusion(story: Story, start: Start, cause: Cause) -> Component | None:
    """Whose request it was, if the log rules out all others.

    By the same bytes named elsewhere in the log, and by the order in which a model and its context
    are allocated: weights, output, KV, RS, compute. What does not leave exactly one is null.
    """
    if cause.phase in RUNTIME or start.ready:
        return None
    possible = _possible(start, cause)
    named = _of_these_bytes(story, start, cause)
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


def _of_these_bytes(story: Story, start: Start, cause: Cause) -> frozenset[Component]:
    """Components that the log names with the same bytes: refused elsewhere, or in a dry run."""
    if cause.size is None:
        return frozenset()

    def same(device: str | None, size: int, *, exact: bool) -> bool:
        near = 0 if exact and cause.exact else _ROUNDED
        here = device is None or cause.device is None or device == cause.device
        return here and abs(size - (cause.size or 0)) <= near

    refused: set[Component] = set()
    told: set[Component] = set()
    for one in (*story.ended, start):
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


def _device(story: Story, cause: Cause) -> str | None:
    """The device's name, if this log names it: ``device 0`` alone is not a name."""
    if cause.device is not None or cause.family is None:
        return cause.device
    if cause.family == "CPU":
        return "CPU"
    stems = "|".join(_STEMS.get(cause.family, (cause.family,)))
    number = r"\d*" if cause.index is None else str(cause.index)
    named = [d for d in story.devices if re.fullmatch(rf"(?:{stems}){number}", d)]
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


def _derived(story: Story, start: Start, failure: Failure | None) -> list[Notice]:
    """Notices about what is not in the log."""
    out: list[Notice] = []
    at = story.last.number
    if not start.seen and start.verbosity is not None and start.verbosity[0] < 4:
        level = start.verbosity[1]
        out.append(Notice(id="sizes_hidden", line=level.number, text=level.text))
    elif not start.seen and story.stamped and start.introduced and start.ready:
        out.append(Notice(id="sizes_hidden", line=at, text="no size line from start to ready"))
    elif (
        failure is not None
        and failure.kind in (Kind.ALLOCATION, Kind.BUFFER_LIMIT)
        and failure.component is not None
        and failure.component not in {*start.seen, Component.GRAPH}  # which none ever names
    ):
        out.append(Notice(id="size_line_absent", line=failure.line, text=failure.text))
    if story.restarts is not None:
        out.append(story.restarts)
    if story.starts > 1:
        out.append(Notice(id="restarted", line=at, text=f"{story.starts} starts"))
    if start.capped:
        out.append(Notice(id="capped", line=at, text=f"more than {KEEP}"))
    return out


def _outcome(start: Start, failure: Failure | None, exit_status: int | None) -> LogOutcome:
    if (failure is not None and failure.fatal) or start.end is not None or start.deaths:
        return LogOutcome.FAILED
    if start.exited or exit_status == 0:
        return LogOutcome.EXITED
    return LogOutcome.STARTED if start.ready or start.served else LogOutcome.UNKNOWN


def _era(story: Story) -> str:
    """Between which builds all of these words were in use."""
    if story.engine.build is not None:
        return f"b{story.engine.build}-b{story.engine.build}"
    spans = story.eras or ({STAMP_ERA} if story.stamped else set())
    if not spans:
        return "unknown"
    first, final = max(a for a, _ in spans), min(b for _, b in spans)
    return f"b{first}-b{final}" if first <= final else "unknown"
