"""The story of one process: its own lines are told, text that it repeats of others is withdrawn."""

from __future__ import annotations

import re
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Final

from arriero.base.words import Kind, Phase
from arriero.logs.grammar import Act, Event, Rule, To
from arriero.logs.lines import MAX_LINE, Line
from arriero.logs.model import EngineTag, Notice
from arriero.logs.quoted import LOG, Listener, Manner
from arriero.logs.story.acts import suspect, tell
from arriero.logs.story.cause import MEMORY
from arriero.logs.story.process import SET_BACK, Process
from arriero.logs.story.start import Start

OPEN: Final = 8
"""Starts of one process for which is kept what was known before a text was repeated."""
_OF_TASK: Final = re.compile(
    r"slot\s{1,12}(launch_slot_|release): id\s{1,4}\d{1,9} \| task (\d{1,9}) \| (?:proces|stop)"
)
_OF_STARTS: Final = frozenset(
    (Act.SIZE, Act.TOTAL, Act.VALUE, Act.FIT_BEGIN, Act.FIT_END, Act.ROLE, Act.DEVICE, Act.BEGIN)
)
_EARLY: Final = (Phase.ARGUMENTS, Phase.FIT, Phase.LOAD, Phase.CONTEXT, Phase.WARMUP)


@dataclass
class Open:
    """What was known when a line began to repeat a text."""

    start: Start
    before: Start
    """As ``start`` was then."""
    serving: bool
    """Whether the process had served before: it repeated a request's text, else its file's."""
    line: int
    stamp: int | None
    ended: list[Start]
    starts: int
    engine: EngineTag
    restarts: Notice | None
    begun: set[int] = field(default_factory=set)
    """Tasks that were begun since and have not ended."""
    anew: bool = False
    """Whether a start was told of since: no process tells of one that serves, or loads a file."""
    starting: bool = False
    """Whether the last start that was told of since has not come to an end."""

    def is_after(self, line: Line) -> bool:
        """Whether the clock of ``line`` is behind: another process says it, or none."""
        return self.stamp is not None and (line.stamp is None or line.stamp < self.stamp - SET_BACK)


class Story:
    """Takes the lines of one process as they come; ``process`` is what they told so far."""

    def __init__(self, child: str | None) -> None:
        self.process = Process(child)
        self._listener: Listener[tuple[Line, Sequence[Event]]] = Listener(MAX_LINE)
        self._open: list[Open] = []
        """For each start in which a text was repeated lately, what was known before."""

    @property
    def start(self) -> Start:
        """The start that the process is in."""
        return self.process.start

    @property
    def listening(self) -> bool:
        """Whether the next line may be text that the last one began to repeat, or withdraw it."""
        return self._listener.opened or (bool(self._open) and self._open[0].anew)

    def feed(self, line: Line, found: Sequence[Event]) -> None:
        """Take the next line of this process and the events of it."""
        self.process.last = line
        if self._open and (of_task := _OF_TASK.match(line.text)):
            self._count(line, of_task[1] == "release", int(of_task[2]))
        rules = [event.rule for event in found]
        begins = any(r.act is Act.BEGIN or r.to is To.LOAD for r in rules)
        ready = any(r.to is To.READY for r in rules)
        if self._open and rules:
            self._see(line, rules, begins, ready)
        set_back = self.process.is_set_back(line)
        manner = Manner(
            stamp=line.stamp,
            grave=any(map(_is_grave, rules)),
            anew=begins or set_back,
            early=any(map(_is_early, rules)),
            ready=ready,
            serving=self.start.ready or self.start.served,
            told=bool(found) or set_back,
        )
        for (own, events_of), sure in self._listener.hear(line.text, (line, found), manner):
            (tell if sure else suspect)(self.process, own, events_of)
        if self._listener.opened:
            self._hold(line, manner.serving)

    def settled(self, *, sure: bool = False) -> Process:
        """What is known if the log ends here: what others may have said is then a guess.

        ``sure``: something else shows that the process died.
        """
        rest = list(self._listener.rest())
        if not rest:
            return self.process
        process = deepcopy(self.process)
        for (line, found), known in rest:
            (tell if known or sure else suspect)(process, line, found)
        return process

    # --- what is withdrawn ----------------------------------------------------------------------

    def _see(self, line: Line, rules: Sequence[Rule], begins: bool, ready: bool) -> None:
        """Take a line that may tell of a start: who is ready though none began went on.

        A model's file may hold a log, too: of a start that begins and fails, or serves and dies.
        """
        ends = any(map(_ends, rules))
        for at, held in enumerate(self._open):
            held.anew = held.anew or begins or (ready and held.serving)
            held.starting = begins or (held.starting and not ends)
            if ready and held.anew and not (held.starting or held.serving or held.is_after(line)):
                self._withdraw(at)
                return

    def _hold(self, line: Line, serving: bool) -> None:
        """Remember what is known where a line begins to repeat a text."""
        process = self.process
        self._open = [held for held in self._open if line.number - held.line <= LOG]
        if self._open and self._open[-1].start is process.start:
            if self._open[-1].anew:
                return
            self._open.pop()
        if len(self._open) < OPEN:
            self._open.append(
                Open(
                    start=process.start,
                    before=process.start.kept(),
                    serving=serving,
                    line=line.number,
                    stamp=line.stamp if self._listener.stamped else None,
                    ended=process.ended,
                    starts=process.starts,
                    engine=process.engine,
                    restarts=process.restarts,
                )
            )

    def _count(self, line: Line, ends: bool, task: int) -> None:
        """Take a line about a task: who ends one that was not begun since is the same process.

        What a request held may tell of tasks too: of each that ends, it tells first that it begins.
        So does a process that began since, and its clock is behind.
        """
        self._open = [held for held in self._open if line.number - held.line <= LOG]
        for at, held in enumerate(self._open):
            if held.is_after(line):
                continue
            if not ends:
                held.begun.add(task)
            elif task in held.begun:
                held.begun.remove(task)
            elif held.anew:
                self._withdraw(at)
                return

    def _withdraw(self, at: int) -> None:
        """Forget what was told since: it told of a start, and the process goes on."""
        held, process = self._open[at], self.process
        del self._open[at + 1 :]
        self._listener.close()
        held.anew = held.starting = False
        held.begun.clear()
        process.start = held.start = held.before
        held.before = process.start.kept()
        process.ended, process.starts = held.ended, held.starts
        process.engine, process.restarts = held.engine, held.restarts


def _is_grave(rule: Rule) -> bool:
    """Whether its message tells of a failure that no request brings about by its text."""
    if rule.act is Act.FAILURE:
        return rule.kind in (*MEMORY, Kind.BACKEND, Kind.RPC, Kind.CRASH, Kind.KILLED)
    return rule.act in (Act.REQUEST, Act.BUFFER, Act.DEATH, Act.END)


def _is_early(rule: Rule) -> bool:
    """Whether a process that serves never says it: a start does, or its end."""
    if rule.act in (Act.FAILURE, Act.OWNER, Act.MILESTONE):
        return rule.phase in _EARLY or rule.to in (To.LOAD, To.EXIT)
    return rule.act in _OF_STARTS


def _ends(rule: Rule) -> bool:
    """Whether it tells that a start came to its end."""
    if rule.act in (Act.DEATH, Act.END) or rule.to is To.EXIT:
        return True
    return rule.act is Act.FAILURE and bool(rule.fatal) and rule.kind is not None
