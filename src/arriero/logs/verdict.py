"""From the causes of a start to its failure: which came first, whether it ended the start, what it
was not."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from arriero.base.sizes import MIB
from arriero.base.words import Component, Kind, LogOutcome, Phase, Role
from arriero.logs.grammar import STAMP_ERA, Act, By, Rule
from arriero.logs.model import Effective, Failure, Notice, Reading
from arriero.logs.naming import named
from arriero.logs.story import Process, Story
from arriero.logs.story.cause import FAR, MEMORY, MILD, NEAR, Cause
from arriero.logs.story.start import KEEP, Start

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


def read(story: Story, exit_status: int | None = None) -> Reading:
    """What a process's lines say. ``exit_status`` as ``subprocess`` or a shell gives it."""
    process = story.settled(sure=_signal(exit_status) in _DEADLY)
    start = process.start
    failure, secondary = judge(process, start, exit_status)
    unfinished = failure is None and not (start.ready or start.served or start.exited)
    if unfinished and process.ended:
        # the log is cut in the middle of another try: the try that ended is the answer
        start = process.ended[0]
        failure, secondary = judge(process, start, None)
    elif process.ended:
        earlier, more = judge(process, process.ended[0], None)
        secondary = (*(() if earlier is None else (earlier,)), *more, *secondary)
    return Reading(
        era=_era(process),
        child=process.child,
        engine=process.engine,
        outcome=_outcome(start, failure, exit_status),
        failure=failure,
        secondary=secondary[:KEEP],
        buffers=tuple(start.buffers),
        notices=(*start.notices, *_derived(process, start, failure)),
        effective=effective(start),
    )


def judge(
    process: Process, start: Start, exit_status: int | None
) -> tuple[Failure | None, tuple[Failure, ...]]:
    """The failure of one start, and what is secondary to it, in the order of the log."""
    deaths = [*start.deaths, *_unlogged_death(process, start, exit_status)]
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
        primary = _of_death(process, start, deaths[0])
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

    def failure(cause: Cause) -> Failure:
        ended = bool(cause.fatal) if cause in deaths else _ended_it(cause, start, deaths)
        fatal = ended and (cause is primary or id(cause) not in outlived)
        return named(process, start, cause, fatal=fatal, ruling_out=cause is not start.end)

    return (
        None if primary is None else failure(primary),
        tuple(failure(cause) for cause in sorted(rest, key=lambda c: c.line)),
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


def _unlogged_death(process: Process, start: Start, exit_status: int | None) -> list[Cause]:
    """The death that only the exit status shows."""
    signal = _signal(exit_status)
    if signal not in _DEADLY or start.deaths:
        return []
    saving = process.last.number - start.saving_line <= NEAR
    said = _SIGNALS.get(signal, _NO_LINE)
    return [
        Cause(
            said.kind or Kind.CRASH,
            said,
            process.last.number,
            process.last.text or f"ended by signal {signal}",
            process.last.number,
            component=Component.PROMPT_CACHE if saving and said.kind is Kind.CRASH else None,
            phase=Phase.FIT if start.probing else start.phase,
            fatal=True,
            inferred=said.inferred,
        )
    ]


def _after_the_end(start: Start, death: Cause) -> bool:
    """Whether it is the crash of a start that had failed already: its error path is at fault."""
    return start.end is not None and death.kind is Kind.CRASH and start.end.line < death.line


def _of_death(process: Process, start: Start, death: Cause) -> Cause:
    """A death without a cause in the log; what it was doing may tell."""
    if death.kind is Kind.KILLED and start.saved + start.checkpoints >= _GROWN:
        death.kind, death.inferred = Kind.STATE_GROWTH, True
        of_prompts = start.saved >= start.checkpoints
        death.size = max(start.saved, start.checkpoints)
        death.component = Component.PROMPT_CACHE if of_prompts else Component.CHECKPOINTS
    elif death.kind is Kind.CRASH and start.worker and death.rule.aborts:
        death.kind = Kind.RPC  # a worker does nothing but what a client asks
    elif death.kind is Kind.CRASH and death.component and process.uses_rpc:
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


def _derived(process: Process, start: Start, failure: Failure | None) -> list[Notice]:
    """Notices about what is not in the log."""
    out: list[Notice] = []
    at = process.last.number
    if not start.seen and start.verbosity is not None and start.verbosity[0] < 4:
        level = start.verbosity[1]
        out.append(Notice(id="sizes_hidden", line=level.number, text=level.text))
    elif not start.seen and process.stamped and start.introduced and start.ready:
        out.append(Notice(id="sizes_hidden", line=at, text="no size line from start to ready"))
    elif (
        failure is not None
        and failure.kind in (Kind.ALLOCATION, Kind.BUFFER_LIMIT)
        and failure.component is not None
        and failure.component not in {*start.seen, Component.GRAPH}  # which none ever names
    ):
        out.append(Notice(id="size_line_absent", line=failure.line, text=failure.text))
    if process.restarts is not None:
        out.append(process.restarts)
    if process.starts > 1:
        out.append(Notice(id="restarted", line=at, text=f"{process.starts} starts"))
    if start.capped:
        out.append(Notice(id="capped", line=at, text=f"more than {KEEP}"))
    return out


def _outcome(start: Start, failure: Failure | None, exit_status: int | None) -> LogOutcome:
    if (failure is not None and failure.fatal) or start.end is not None or start.deaths:
        return LogOutcome.FAILED
    if start.exited or exit_status == 0:
        return LogOutcome.EXITED
    return LogOutcome.STARTED if start.ready or start.served else LogOutcome.UNKNOWN


def _era(process: Process) -> str:
    """Between which builds all of these words were in use."""
    if process.engine.build is not None:
        return f"b{process.engine.build}-b{process.engine.build}"
    spans = process.eras or ({STAMP_ERA} if process.stamped else set())
    if not spans:
        return "unknown"
    first, final = max(a for a, _ in spans), min(b for _, b in spans)
    return f"b{first}-b{final}" if first <= final else "unknown"
