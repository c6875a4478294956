"""Reading a log line by line, as it comes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from arriero.base.words import Phase
from arriero.logs.grammar import SIGNS
from arriero.logs.lines import Line, clean
from arriero.logs.model import Buffer, Effective, Failure, Reading
from arriero.logs.story import Story

MAX_CHILDREN = 64


@dataclass(frozen=True, slots=True)
class Mark:
    """How often a sign of serving was seen, where first, and its last line."""

    count: int
    first_line: int
    last_text: str


class LogReader:
    """Reads the log of one server while it runs: ``feed`` it each line, ask it anything at any time.

    Lines of a router's children (``[34605] ...``) are kept apart.
    """

    def __init__(self) -> None:
        self._stories: dict[str | None, Story] = {}
        self._marks: dict[str, Mark] = {}
        self._lines = 0
        self._failure: tuple[int, Failure | None] = (-1, None)

    def feed(self, line: str, number: int | None = None) -> None:
        """Take one raw line without its newline. ``number`` if lines before it were left out."""
        self._lines = self._lines + 1 if number is None else number
        self.take(clean(line, self._lines))

    def take(self, line: Line) -> None:
        """Take one line that is already clean."""
        self._lines = line.number
        if not line.text:
            return
        story = self._stories.get(line.child)
        if story is None:
            if len(self._stories) >= MAX_CHILDREN:
                return
            story = self._stories[line.child] = Story(line.child)
        for sign in SIGNS:
            if sign.key in line.text:
                before = self._marks.get(sign.id)
                self._marks[sign.id] = Mark(
                    count=before.count + 1 if before else 1,
                    first_line=before.first_line if before else line.number,
                    last_text=line.text,
                )
        story.feed(line)

    @property
    def ready(self) -> bool:
        """Whether the server has said that the model is loaded or that it listens with it."""
        return any(story.start.ready for story in self._stories.values())

    @property
    def phase(self) -> Phase | None:
        """Where in its life the server is, by its log."""
        return self._main.start.phase

    @property
    def effective(self) -> Effective:
        """The values that the engine said it runs with, so far."""
        return self._main.effective

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """The buffers allocated so far."""
        return tuple(self._main.start.buffers)

    @property
    def marks(self) -> Mapping[str, Mark]:
        """What was seen of each sign in ``grammar.SIGNS``."""
        return self._marks

    @property
    def failure_so_far(self) -> Failure | None:
        """The failure as far as the lines show it; cheap to ask after every line."""
        if self._failure[0] != self._lines:
            self._failure = (self._lines, self._main.failure)
        return self._failure[1]

    @property
    def _main(self) -> Story:
        return self._stories.get(None) or next(iter(self._stories.values()), Story(None))

    def readings(self, exit_status: int | None = None) -> tuple[Reading, ...]:
        """One reading for each process in the log: the server's (or router's) own first.

        ``exit_status`` is that of the process itself: negative for a signal, or as a shell reports it.
        """
        children = [story for child, story in self._stories.items() if child is not None]
        own = self._stories.get(None)
        out: list[Reading] = []
        if own is not None and (not children or own.start.any):
            out.append(own.reading(exit_status))
        elif not children:
            out.append(Story(None).reading(exit_status))
        out += [story.reading(exit_status if own is None else None) for story in children]
        return tuple(out)
