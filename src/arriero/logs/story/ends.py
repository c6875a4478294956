"""How a start ends: a death, a message that it gives up, or another try."""

from __future__ import annotations

from arriero.base.words import Component, Kind, Phase, Role
from arriero.logs.grammar import By, Event, To
from arriero.logs.lines import Line
from arriero.logs.story.cause import FAR, GROUP, MEMORY, NEAR, RUNTIME, Cause
from arriero.logs.story.failures import is_ours
from arriero.logs.story.process import Process
from arriero.logs.story.start import KEEP, Start


def death(process: Process, event: Event, line: Line) -> None:
    """The process died; by itself this names no cause."""
    start, rule = process.start, event.rule
    if not is_ours(event.facts.get("who") or event.facts.get("task")):
        return  # the kernel's log is about every process of the machine
    kind = rule.kind or Kind.CRASH
    if "(restarting)" in line.text:
        process.restarted(event, line)
    last = start.deaths[-1] if start.deaths else None
    if last is not None and line.number - last.last <= FAR and _is_same(last, event, line):
        return
    if len(start.deaths) >= KEEP:
        start.capped = True
        return
    saving = line.number - start.saving_line <= NEAR and kind is Kind.CRASH
    died = Cause(
        kind,
        rule,
        line.number,
        line.text,
        line.number,
        component=Component.PROMPT_CACHE if saving else rule.component,
        phase=Phase.FIT if start.probing else rule.phase or start.phase,
        fatal=True,
        inferred=rule.inferred,
    )
    start.place(died)
    start.deaths.append(died)


def _is_same(last: Cause, event: Event, line: Line) -> bool:
    """Whether a further line tells of the same death; what says more of it is taken."""
    kind = event.rule.kind or Kind.CRASH
    classed = (Kind.ENVIRONMENT, Kind.MODEL, Kind.BACKEND)
    if kind in classed and last.kind is Kind.CRASH:
        frame = last.rule.by is By.BACKTRACE and kind is not Kind.ENVIRONMENT
        if frame or not last.rule.aborts:
            last.kind, last.rule = kind, event.rule
            last.component = event.rule.component or last.component
            last.name(line)
    elif kind is not last.kind and not (
        kind is Kind.CRASH and (last.inferred or last.kind in classed)
    ):
        return False
    last.last = line.number
    return True


def end(process: Process, event: Event, line: Line) -> None:
    """The start ended; by itself this names no cause."""
    start, rule = process.start, event.rule
    last = start.recent(line, GROUP)
    if rule.to is To.REAL:
        start.fit, start.dry = None, False
        if last is not None and last.usual and not last.went_on:
            last.probe = False
    if last is not None and last.kind in MEMORY and last.phase not in RUNTIME:
        last.went_on = False  # the logger is asynchronous: what came before is printed late
    if start.end is None:
        start.end = Cause(
            rule.kind or Kind.CRASH,
            rule,
            line.number,
            line.text,
            line.number,
            phase=rule.phase,
            inferred=True,
        )


def of_draft(process: Process, event: Event, line: Line) -> None:
    """The failure just before was that of the draft model or its context."""
    start = process.start
    cause = start.recent(line, GROUP)
    if cause is not None and cause.probe and not cause.usual and not start.probing:
        cause = None
    if cause is not None and cause.kind in MEMORY:
        cause.role = Role.DRAFT
    elif cause is None:
        end(process, event, line)
        if start.end is not None:
            start.end.role = Role.DRAFT


def retry(process: Process, event: Event, line: Line) -> None:
    """What was refused is asked for again."""
    start, to = process.start, event.rule.to
    if to is To.AT_ONCE and not _just_failed(start, line):
        return  # the first try, or one that somebody asked for later
    if to is To.WENT_ON and not start.causes:
        return  # the first try: nothing failed before it
    for cause in start.causes[-1:]:
        if to in (To.WENT_ON, To.AT_ONCE):
            cause.went_on = True
        else:
            cause.retried, cause.last = True, line.number
    start.note(event.rule.notice, line)


def _just_failed(start: Start, line: Line) -> bool:
    """Whether this start failed in the lines just before."""
    last = [cause.last for cause in (*start.causes[-1:], *start.deaths[-1:])]
    ended = [start.end.line] if start.end is not None else []
    return line.number - max([*last, *ended], default=-FAR) <= NEAR
