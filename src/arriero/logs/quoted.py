"""What a server says itself, and what it only repeats: text of clients, answers and model files.

A prompt may hold any line that a failing server prints. Such text is never evidence. It stands in
lines that are known to repeat it, behind a quote or an equals sign in what the server's loop says,
and, when it has line ends of its own, in the lines that follow without a prefix.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from arriero.base.prompts import echo_start

_T = TypeVar("_T")

HELD: Final = 400
"""Lines of repeated text that are looked at for its end."""
LOG: Final = 2000
"""Lines of a log that are kept back because a request may have held it."""
CLOCK: Final = 50_000
"""Microseconds by which threads print their lines out of order."""
NEXT, BACK = 2, 8
"""Tasks by which a line of one process may be ahead of, or behind, the one before."""
_TASK: Final = re.compile(r"\| task (\d{1,9}) \|")
_OF_START: Final = re.compile(
    r"(?:cmn|spec)\s|(?:srv|slot)\s{1,12}(?:load_model|llama_server|init(?:ialize)?|main):"
    r"|srv\s{1,12}operator\(\): operator\(\):"
)
"""Lines of the same make that a start says, or its end."""
_LOOP: Final = re.compile(
    r"(?:slot|srv|que|res|cmn|spec)\s{1,12}\S{1,60}:\s{1,4}"
    r"(?:id\s{1,4}-?\d{1,9} \| (?:task -?\d{1,9} \| )?)?"
)
_QUOTE_END: Final = re.compile(r"'(?:\)| is not marked as EOG| skipped|, start=[^'\n]{0,99})?\s?\Z")
_UNSTAMPED: Final = "error parsing grammar:"
"""Repeats a text, and has no prefix itself."""
_HEAD: Final = re.compile(r"\w{1,60}:\s")
_OLD_LOOP: Final = re.compile(r"(?:INFO|WARN|ERR) +\[|(?:request|response):\s")
# An error that is passed on says first what it is, and then what it is about.
_PASSED_ON: Final = re.compile(
    r"(?:task id = -?\d{1,9},\s{1,4}error: )?(?:[\w() ]{0,40}\bgot (?:another )?exception: )?"
    r"(?:instance name=\S{1,200} )?(?:\{\"error\":\{\"code\":\d{1,4},\"message\":\")?"
)
_ASIDE: Final = re.compile(r"['\"=`{]")
_ABOUT: Final = re.compile(r": |:\\|['\"`\\{=]")


def is_of_loop(text: str) -> bool:
    """Whether a line begins as those of the server's loop do."""
    return _LOOP.match(text) is not None


def own_words(text: str) -> tuple[str, int, int]:
    """The part of a line that the server wrote, and between where a message of it begins.

    Returns the text, the index where an error that it passes on begins, else 0, and the index from
    which on anything may be what somebody else wrote.
    """
    echo = echo_start(text)
    words = text if echo < 0 else text[:echo]
    loop = _LOOP.match(words)
    if loop is None:
        return words, 0, len(words)
    passed = _PASSED_ON.match(words, loop.end())
    if passed is None or passed.end() == loop.end():
        aside = _ASIDE.search(words, loop.end())
        return words, 0, aside.start() if aside else len(words)
    aside = _ABOUT.search(words, passed.end())
    return words, passed.end(), aside.start() if aside else len(words)


def opening(text: str) -> str | None:
    """What ends the text that a line begins to repeat: a quote, nothing (""), or it ended: None."""
    echo = echo_start(text)
    if echo < 0:
        loop = _LOOP.match(text)
        passed = loop and _PASSED_ON.match(text, loop.end())
        if not loop or not passed or passed.end() == loop.end():
            return None
        return None if text.endswith("}") else ""
    said = text[echo:].strip()
    if said.endswith(" logit bias = -inf"):
        return None
    if said.startswith(("'", "('")):
        return "" if len(said) > 2 and _QUOTE_END.search(said) else "'"
    if said[:1] in {"{", "["} or said.startswith("data: {"):
        return None if said[-1] in "}]" else ""
    return ""


@dataclass(frozen=True, slots=True)
class Manner:
    """How a line says what it says: who listens to a process knows it of each line."""

    stamp: int | None = None
    """The process's own clock, in microseconds."""
    grave: bool = False
    """Whether it tells of a failure that no request brings about."""
    anew: bool = False
    """Whether it tells that a process began."""
    early: bool = False
    """Whether only a start, or its end, says it."""
    ready: bool = False
    """Whether it tells that a start came to its end."""
    serving: bool = False
    """Whether the process had served before."""
    told: bool = False
    """Whether it means anything."""


@dataclass(frozen=True, slots=True)
class _Held(Generic[_T]):
    text: str
    own: bool
    manner: Manner
    line: _T


@dataclass
class Listener(Generic[_T]):
    """Tells the lines of one process that are its own, with what the caller knows of each.

    A line that may be either is kept back until the lines after it tell: it was repeated if the
    process goes on as if nothing had been said. Once a process serves, a text that it repeats may
    be a log of its own, with stamps and all: only a line that a request brings about ends it.
    """

    longest: int
    """Characters after which lines are cut: one of this length may have had an end."""
    opened: bool = False
    _quote: bool = False
    _head: str | None = None
    stamped: bool = False
    """Whether the process puts its clock before each line."""
    _from: int | None = None
    """The clock of the line that began to repeat a text."""
    _task: int = -1
    """The last task that was spoken of before."""
    _began: bool = False
    """Whether what is kept back may be another process that came to serve."""
    _of_start: bool = False
    """Whether what is kept back tells of a start."""
    _since: int = -1
    """The last task in what is kept back."""
    _held: list[_Held[_T]] = field(default_factory=list)

    def hear(self, text: str, line: _T, manner: Manner) -> Iterator[tuple[_T, bool]]:
        """The lines that are known to be the server's own by now, and whether that is sure."""
        stamped = manner.stamp is not None
        if not manner.serving:  # by then it has shown how it logs, and may repeat other ways
            self.stamped = self.stamped or stamped
        own = stamped if self.stamped else not stamped and _is_own(text, self._head)
        said = _Held(text, own, manner, line)
        if self._quote:
            yield from self._inside(said)
        else:
            yield from self._outside(said)

    def _outside(self, said: _Held[_T]) -> Iterator[tuple[_T, bool]]:
        """A line that stands in no quote."""
        if self.opened:
            if said.manner.serving:
                if not self._goes_on(said):
                    yield from self._keep(said)
                    return
                if self._began:
                    yield from ((held.line, True) for held in self._held)
            elif not said.own:
                if len(self._held) < HELD:
                    self._held.append(said)
                return
            elif said.manner.grave or said.manner.anew:
                yield from ((held.line, False) for held in self._held)
            self._held.clear()
        self._open(said)
        yield said.line, True

    def _keep(self, said: _Held[_T]) -> Iterator[tuple[_T, bool]]:
        manner = said.manner
        if manner.told:
            self._held.append(said)
        self._of_start = self._of_start or manner.anew or manner.early
        self._began = self._began or (
            manner.ready and (self._is_behind(manner) or not self.stamped)
        )
        self._since = max(self._since, _task(said.text) or -1)
        if len(self._held) > LOG:
            held, self._held, self.opened = self._held, [], False
            yield from ((one.line, self._began and self.stamped) for one in held)

    def _goes_on(self, said: _Held[_T]) -> bool:
        """Whether a line is of a process that serves, be it this one or one that began since."""
        manner = said.manner
        if not said.own or manner.grave or manner.anew or manner.early or manner.ready:
            return False
        if _OF_START.match(said.text) or self._is_behind(manner):
            return False
        if self._of_start:
            task = _task(said.text)
            if task is None:
                return False  # which process it is the next task tells: a start counts from 0
            follows = -BACK <= task - self._since <= NEXT
            if self._began and self.stamped:
                self._began = follows or task < self._task
            elif task < self._task or (self._began and follows):
                return False
            else:
                self._began = False
        return not self.stamped or _LOOP.match(said.text) is not None

    def _is_behind(self, manner: Manner) -> bool:
        """Whether a clock is behind that of the line which began to repeat a text."""
        if manner.stamp is None or self._from is None:
            return False
        return manner.stamp < self._from - CLOCK

    def _open(self, said: _Held[_T]) -> None:
        """Learn from a line whether it begins to repeat a text."""
        text, own = said.text, said.own
        ends = opening(text)
        if self.stamped and not own and _UNSTAMPED not in text:
            ends = None  # somebody else's line
        head = None if _LOOP.match(text) else _HEAD.match(text)
        self._head = head[0] if head else None
        if ends == "" and head and not self.stamped and _QUOTE_END.search(text):
            ends = None  # a token of the model's, in a log in which no prefix would tell the rest
        self.opened = ends is not None
        self._began, self._of_start, self._since = False, False, -1
        self._quote = ends == "'" and len(text) < self.longest
        self._from = said.manner.stamp if said.manner.stamp is not None else self._from
        task = _task(text) if self.opened or said.manner.told else None
        self._task = self._task if task is None else task

    def _inside(self, said: _Held[_T]) -> Iterator[tuple[_T, bool]]:
        if not said.own and _QUOTE_END.search(said.text):
            self._held.clear()
            self._quote = False
            return
        self._held.append(said)
        if len(self._held) >= HELD:
            yield from self._unquoted()

    def _unquoted(self) -> Iterator[tuple[_T, bool]]:
        """The end of the quote is missing: what came before the next own line is not known."""
        held, self._held, self._quote = self._held, [], False
        for said in held:
            yield from self._outside(said)
            self._quote = False

    def close(self) -> None:
        """What was repeated has ended."""
        self._held.clear()
        self.opened = self._quote = False

    def rest(self) -> Iterator[tuple[_T, bool]]:
        """What is kept back, as if nothing came after it."""
        if self._quote:
            if not any(held.own for held in self._held):
                return
            yield from self._unquoted()
        yield from ((held.line, False) for held in self._held)


def _task(text: str) -> int | None:
    """The task that a line of the loop is about: what it repeats may name any other."""
    loop = _LOOP.match(text)
    found = _TASK.search(text, 0, loop.end()) if loop else None
    return int(found[1]) if found else None


def _is_own(text: str, head: str | None) -> bool:
    """Whether a line without a prefix is the server's: of its loop, or of the function before."""
    if head is not None and text.startswith(head):
        return True
    return _LOOP.match(text) is not None or _OLD_LOOP.match(text) is not None
