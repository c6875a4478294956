"""Reading a log line by line, as it comes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from arriero.base.words import Kind, Phase
from arriero.logs import verdict
from arriero.logs.grammar import SIGNS, Event, events
from arriero.logs.lines import Line, clean
from arriero.logs.model import Buffer, Effective, Failure, Reading
from arriero.logs.quoted import own_words
from arriero.logs.story import Story

MAX_CHILDREN = 64
"""Router children kept apart; lines of further ones are left out."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """How often a sign of serving was seen, on which line first, and its last line."""

    count: int
    first_line: int
    last_text: str


class LogReader:
    """Reads the log of a server while it runs: ``feed`` it each line, ask it anything any time.

    Lines of a router's children (``[34605] ...``) are kept apart; the properties are about the
    process itself, ``readings`` about all.
    """

    def __init__(self) -> None:
        self._stories: dict[str | None, Story] = {}
        self._signs: dict[str, Sighting] = {}
        self._lines = 0
        self._known: tuple[int, Failure | None] = (-1, None)
        self._last: str | None = None
        self._listening: set[str | None] = set()

    def feed(self, line: str) -> None:
        """Take one raw line, without its newline, with whatever prefix it has."""
        self.take(clean(line, self._lines + 1))

    def take(self, line: Line, found: Sequence[Event] | None = None) -> None:
        """Take one line that is clean already, and its events if they are known."""
        self._lines = line.number
        if not line.text:
            return
        found = events(line.text) if found is None else found
        child = line.child
        if child is None and any(event.rule.of_kernel for event in found):
            child = self._last  # of a router's processes, the one that holds the memory
        story = self._stories.get(child)
        if story is None:
            if len(self._stories) >= MAX_CHILDREN:
                return
            story = self._stories[child] = Story(child)
        self._last = line.child or self._last
        own = own_words(line.text)[0]
        for name, words in SIGNS.items():
            if words in own:
                before = self._signs.get(name, Sighting(0, line.number, ""))
                self._signs[name] = Sighting(before.count + 1, before.first_line, line.text)
        story.feed(line, found)
        if story.listening != (child in self._listening):
            self._listening ^= {child}

    @property
    def listening(self) -> bool:
        """Whether the next line may be text that the last one began to repeat."""
        return bool(self._listening)

    @property
    def _main(self) -> Story:
        own = self._stories.get(None)
        return own or next(iter(self._stories.values()), None) or Story(None)

    @property
    def ready(self) -> bool:
        """Whether the server has said that the model is loaded, or that it listens with it."""
        return any(story.start.ready for story in self._stories.values())

    @property
    def phase(self) -> Phase | None:
        """Where in its life the server is."""
        return self._main.start.phase

    @property
    def effective(self) -> Effective:
        """The values that the engine said it runs with, so far."""
        return verdict.effective(self._main.start)

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """The buffers allocated so far."""
        return tuple(self._main.start.buffers)

    @property
    def signs(self) -> Mapping[str, Sighting]:
        """What was seen of each of ``grammar.SIGNS``."""
        return self._signs

    @property
    def failure_so_far(self) -> Failure | None:
        """The failure as far as the lines show it, guesses left out.

        Asked again without a new line, it is free.
        """
        if self._known[0] != self._lines:
            story = self._main
            self._known = (self._lines, verdict.judge(story.process, story.start, None)[0])
        return self._known[1]

    def readings(self, exit_status: int | None = None) -> tuple[Reading, ...]:
        """One reading for each process in the log, the server's (or router's) own first.

        ``exit_status`` is how the process itself ended: negative for a signal, or as a shell tells.
        """
        own = self._stories.get(None)
        children = [story for child, story in self._stories.items() if child is not None]
        if own is None and not children:
            own = Story(None)
        if own is not None and children and not own.start.told:
            own = None
        out = [] if own is None else [verdict.read(own, exit_status)]
        return (*out, *(verdict.read(s, exit_status if own is None else None) for s in children))


def overall(readings: Sequence[Reading]) -> Reading:
    """What the whole log says: the principal reading, with the buffers and notices of all."""
    if len(readings) == 1:
        return readings[0]
    return msgspec.structs.replace(
        principal(readings),
        buffers=tuple(sorted((b for r in readings for b in r.buffers), key=lambda b: b.line)),
        notices=tuple(sorted((n for r in readings for n in r.notices), key=lambda n: n.line)),
    )


def principal(readings: Sequence[Reading]) -> Reading:
    """Of several processes in one log, the one a person asks about: the one that failed.

    A fatal failure before one that was outlived, before none, and that a process was killed or
    crashed only if none says more; among equals the first.
    """

    def says_less(reading: Reading) -> int:
        if reading.failure is None:
            return 3
        if not reading.failure.fatal:
            return 2
        return int(reading.failure.kind in (Kind.KILLED, Kind.CRASH))

    return min(readings, key=says_less)
