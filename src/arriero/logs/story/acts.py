"""Which function takes a line, by what its row says it does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from arriero.logs.grammar import ERAS, Act, Event, events
from arriero.logs.lines import Line, relayed
from arriero.logs.quoted import own_words
from arriero.logs.story import ends, failures, life, requests, sizes
from arriero.logs.story.process import Process

TAKE: Final[dict[Act, Callable[[Process, Event, Line], None]]] = {
    Act.REQUEST: requests.request,
    Act.BUFFER: requests.buffer,
    Act.OWNER: requests.owner,
    Act.FAILURE: failures.failure,
    Act.DETAIL: failures.detail,
    Act.FRAME: failures.frame,
    Act.DEATH: ends.death,
    Act.END: ends.end,
    Act.OF_DRAFT: ends.of_draft,
    Act.RETRY: ends.retry,
    Act.SIZE: sizes.size,
    Act.TOTAL: sizes.total,
    Act.VALUE: sizes.value,
    Act.STATE: sizes.state,
    Act.MILESTONE: life.milestone,
    Act.FIT_BEGIN: life.fit_begin,
    Act.FIT_END: life.fit_end,
    Act.ROLE: life.role,
    Act.NOTICE: life.notice,
    Act.DEVICE: life.device,
    Act.BEGIN: life.begin,
}


def tell(process: Process, line: Line, found: Sequence[Event]) -> None:
    """Take one line of a process and the events of it."""
    if line.stamp is not None:
        process.clock(line.stamp)
    words, _, end = own_words(line.text)
    for era, first, final in ERAS:
        if era in words:
            process.eras.add((first, final))
    parts = relayed(words[:end])
    if len(parts) == 1:
        _take(process, line, found)
        return
    for part in parts:
        _take(process, replace(line, text=part), events(part))


def _take(process: Process, line: Line, found: Sequence[Event]) -> None:
    for event in found:
        process.start.told = True
        TAKE[event.rule.act](process, event, line)


_OF_FAILURES: Final = frozenset(
    (
        *(Act.REQUEST, Act.BUFFER, Act.OWNER, Act.FAILURE, Act.DETAIL, Act.FRAME),
        *(Act.DEATH, Act.END, Act.OF_DRAFT),
    )
)


def suspect(process: Process, line: Line, found: Sequence[Event]) -> None:
    """Take a line that a client may have written, though nothing after it says so."""
    start = process.start
    known = {id(cause) for cause in (*start.causes, *start.deaths, start.end)}
    tell(process, line, [event for event in found if event.rule.act in _OF_FAILURES])
    for cause in (*start.causes[-1:], *start.deaths[-1:], start.end):
        if cause is not None and id(cause) not in known:
            cause.inferred = True
