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


@dataclass
class Listener(Generic[_T]):
    """Tells the lines of one process that are its own, with what the caller knows of each.

    A line that may be either is kept back until the lines after it tell: it was repeated if the
    process goes on as if nothing had been said.
    """

    longest: int
    """Characters after which lines are cut: one of this length may have had an end."""
    opened: bool = False
    _quote: bool = False
    _head: str | None = None
    _stamped: bool = False
    _held: list[tuple[str, bool, _T]] = field(default_factory=list)

    def hear(
        self, text: str, line: _T, *, stamped: bool, grave: bool = False, anew: bool = False
    ) -> Iterator[tuple[_T, bool]]:
        """The lines that are known to be the server's own by now, and whether that is sure.

        ``grave``: the line tells of a failure that no request brings about; ``anew``: that a
        process began.
        """
        self._stamped = self._stamped or stamped
        own = stamped if self._stamped else _is_own(text, self._head)
        if self._quote:
            yield from self._inside(text, line, own=own)
            return
        if self.opened:
            if not own:
                if len(self._held) < HELD:
                    self._held.append((text, False, line))
                return
            if grave or anew:
                yield from ((held, False) for _, _, held in self._held)
            self._held.clear()
        self._open(text, own=own)
        yield line, True

    def _open(self, text: str, *, own: bool) -> None:
        """Learn from a line whether it begins to repeat a text."""
        ends = opening(text)
        if self._stamped and not own and _UNSTAMPED not in text:
            ends = None  # somebody else's line
        head = None if _LOOP.match(text) else _HEAD.match(text)
        self._head = head[0] if head else None
        if ends == "" and head and not self._stamped and _QUOTE_END.search(text):
            ends = None  # a token of the model's, in a log in which no prefix would tell the rest
        self.opened = ends is not None
        self._quote = ends == "'" and len(text) < self.longest

    def _inside(self, text: str, line: _T, *, own: bool) -> Iterator[tuple[_T, bool]]:
        if not own and _QUOTE_END.search(text):
            self._held.clear()
            self._quote = False
            return
        self._held.append((text, own, line))
        if len(self._held) >= HELD:
            yield from self._unquoted()

    def _unquoted(self) -> Iterator[tuple[_T, bool]]:
        """The end of the quote is missing: what came before the next own line is not known."""
        held, self._held, self._quote = self._held, [], False
        for text, own, line in held:
            if own:
                self._held.clear()
                self.opened = False
            if self.opened:
                self._held.append((text, own, line))
            else:
                self._open(text, own=own)
                self._quote = False
                yield line, True

    def rest(self) -> Iterator[tuple[_T, bool]]:
        """What is kept back, as if nothing came after it."""
        if self._quote:
            if not any(own for _, own, _ in self._held):
                return
            yield from self._unquoted()
        yield from ((held, False) for _, _, held in self._held)


def _is_own(text: str, head: str | None) -> bool:
    """Whether a line without a prefix is the server's: of its loop, or of the function before."""
    if head is not None and text.startswith(head):
        return True
    return _LOOP.match(text) is not None or _OLD_LOOP.match(text) is not None
