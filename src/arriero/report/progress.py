"""What is going on during long work, on stderr and never on stdout.

On a terminal one line is kept up to date; elsewhere each change is one plain line, so that a log
of a run reads like a list of what was tried.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Final, Protocol, TextIO

from arriero.report.view.text import cut, encoded, printable
from arriero.report.view.words import duration

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

Clock = Callable[[], float]
_WIDEST: Final = 200
_ECHO: Final = 4
"""Columns that two ``^C`` take."""


class Progress(Protocol):
    """Where an experiment reports its steps. ``end`` may be called twice."""

    def begin(self, total: int | None) -> None:
        """Work starts; ``total`` steps are expected, None if nobody knows."""

    def step(self, text: str, why: str) -> None:
        """The next step starts (which ends the one before): what is tried, and why."""

    def note(self, text: str) -> None:
        """Something worth a line that is not a step."""

    def end(self) -> None:
        """Work is over, for whatever reason."""


class Silent:
    """Progress for a caller that wants none."""

    def begin(self, total: int | None) -> None: ...

    def step(self, text: str, why: str) -> None: ...

    def note(self, text: str) -> None: ...

    def end(self) -> None: ...


class Left:
    """Time left, from how long steps took so far and the time that was allowed.

    Args:
        allowed: Seconds that the whole may take (``--max-time``), None for no bound.
        clock: Monotonic seconds.
    """

    def __init__(self, allowed: float | None, clock: Clock) -> None:
        self._allowed = allowed
        self._clock = clock
        self._start = self._turn = clock()
        self.total: int | None = None
        self.done = -1
        """Steps that are over; -1 before the first one began."""

    def begin(self, total: int | None) -> None:
        self._start = self._turn = self._clock()
        self.total, self.done = total, -1

    def step(self) -> None:
        self.done += 1
        self._turn = self._clock()

    def text(self) -> str:
        """``about 40 s left``, ``at most 4 min 10 s left``; empty while nothing is known."""
        now = self._clock()
        bound = None if self._allowed is None else max(self._allowed - (now - self._start), 0.0)
        guess = 0.0
        if self.total is not None and self.done > 0:
            mean = (self._turn - self._start) / self.done
            guess = mean * (self.total - self.done) - (now - self._turn)
        # A guess that has run out is no guess; the bound is kept whatever the guess says.
        if guess > 0 and (bound is None or guess < bound):
            return f"about {duration(round(guess))} left"
        return "" if bound is None else f"at most {duration(round(bound))} left"

    def counted(self) -> str:
        """``3/11`` for the third of eleven steps; ``3`` when the total is not known."""
        number = self.done + 1
        return f"{number}/{self.total}" if self.total and number <= self.total else f"{number}"


class Plain:
    """One line for each change, for a stream that is not a terminal."""

    def __init__(
        self, stream: TextIO, *, allowed: float | None = None, clock: Clock = time.monotonic
    ) -> None:
        self._stream = stream
        self._left = Left(allowed, clock)
        self._last = ""

    def begin(self, total: int | None) -> None:
        self._left.begin(total)

    def step(self, text: str, why: str) -> None:
        self._left.step()
        left = self._left.text()
        self._line(
            f"[{self._left.counted()}] {text}"
            + (f" – {why}" if why else "")
            + (f" ({left})" if left else ""),
            key=text + why,
        )

    def note(self, text: str) -> None:
        self._line(text, key=text)

    def end(self) -> None:
        self._last = ""

    def _line(self, text: str, *, key: str) -> None:
        if key == self._last:
            return
        self._last = key
        shown = encoded(printable(text), self._stream.encoding or "ascii")
        self._stream.write(f"arriero: {shown}\n")
        self._stream.flush()


class Live:
    """One line that is kept up to date, for a terminal; notes scroll by above it."""

    def __init__(
        self, stream: TextIO, *, allowed: float | None = None, clock: Clock = time.monotonic
    ) -> None:
        self._stream = stream
        self._left = Left(allowed, clock)
        self._bar: Bar | None = None

    def begin(self, total: int | None) -> None:
        from rich.console import Console, ConsoleOptions
        from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, TextColumn
        from rich.progress import Task as BarTask
        from rich.table import Column
        from rich.text import Text

        left = self._left

        class TimeLeft(ProgressColumn):
            """Counts down between the steps too: one of them may take minutes."""

            def render(self, task: BarTask) -> Text:
                return Text(left.text(), justify="right")

        class Roomy(Console):
            """Keeps the end of a line free for a ``^C``: a wrapped one could not be cleared."""

            @property
            def options(self) -> ConsoleOptions:
                whole = super().options
                return whole.update_width(max(whole.max_width - _ECHO, 1))

        self.end()
        self._left.begin(total)
        console = Roomy(file=self._stream, highlight=False, markup=False, emoji=False)
        roomy = console.width >= 60
        self._bar = Progress(
            SpinnerColumn(finished_text=" "),
            *([BarColumn(bar_width=16)] if roomy and total else []),
            TextColumn("{task.fields[count]}", markup=False),
            TextColumn(
                "{task.description}",
                markup=False,
                table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"),
            ),
            *([TimeLeft()] if roomy else []),
            console=console,
            expand=True,
            transient=True,
            # What the engine or the report prints goes where it was sent, untouched.
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._bar.add_task("", total=total, count="")
        self._bar.start()

    def step(self, text: str, why: str) -> None:
        self._left.step()
        if self._bar is not None:
            self._bar.update(
                self._bar.task_ids[0],
                completed=self._left.done,
                description=encoded(
                    cut(printable(f"{text} – {why}" if why else text), _WIDEST),
                    self._stream.encoding or "ascii",
                ),
                count=self._left.counted(),
            )

    def note(self, text: str) -> None:
        shown = encoded(printable(text), self._stream.encoding or "ascii")
        if self._bar is not None:
            self._bar.console.print(shown, soft_wrap=True)
        else:
            self._stream.write(shown + "\n")

    def end(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


class Shown:
    """The progress that suits ``stream``, ended on leaving a ``with`` block.

    Args:
        stream: Usually ``sys.stderr``.
        allowed: Seconds that the whole may take (``--max-time``), None for no bound.
    """

    def __init__(self, stream: TextIO, *, allowed: float | None = None) -> None:
        kind = Live if stream.isatty() else Plain
        self.progress: Progress = kind(stream, allowed=allowed)

    def __enter__(self) -> Progress:
        return self.progress

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.progress.end()
