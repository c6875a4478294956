"""What an engine prints: kept in a file that cannot grow without end, and read when it has died.

Lines of the start are read at once. Once it serves, a line is only kept: reading one takes a tenth
of a millisecond, and an engine prints a dozen for each request.
"""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Collection
from pathlib import Path
from typing import BinaryIO, Final

from arriero.base.redact import Redactor
from arriero.base.words import Phase
from arriero.logs import LogReader
from arriero.logs.lines import clean
from arriero.logs.model import Effective, Reading

FILES: Final = 3
"""Log files that are kept: ``engine.log``, ``engine.log.1``, ``engine.log.2``."""
KEPT_LINES: Final = 600
"""Lines since it serves that a verdict reads: a fifteenth of a second."""
LONGEST_LINE: Final = 2000
TAIL: Final = 60
_MASK: Final = "***"
_HELD: Final = re.compile(
    r"id +(\d+) .*\b(?:stop processing: |progress, |prompt done, |task\.)n_tokens = +(\d+)"
)
_READ: Final = re.compile(r"prompt eval time = +([\d.]+) ms / +(\d+) tokens")
_GRAMMAR: Final = "error parsing grammar:"
"""After it the engine prints the grammar of a request, in lines of its own."""
_OWN: Final = re.compile(
    r"(?:\d+\.)?\d+\.\d{3}\.\d{3} [A-Z] |(?:srv|slot|que|res) |llama_\w+: |parse: "
)
_LEFT_OUT: Final = "<grammar>"
_LEAVING: Final = "cleaning up before exit"
_ENOUGH: Final = 32
"""Tokens of a prompt from which its speed says something."""


class RotatingLog:
    """The log of all starts, in files of bounded size. A disk that is full ends the log alone."""

    def __init__(self, path: Path | None, size: int) -> None:
        self._path = path
        self._size = max(size // FILES, 1 << 16)
        self._file: BinaryIO | None = None
        self._written = 0
        self._lock = threading.Lock()
        self.error = ""
        if path is not None:
            self._open()

    def write(self, line: str) -> None:
        """One line, without its end."""
        if self._file is None:
            return
        data = line.encode("utf-8", "replace") + b"\n"
        with self._lock:
            if self._written + len(data) > self._size:
                self._rotate()
            self._written += len(data)
            try:
                if self._file is not None:
                    self._file.write(data)
            except OSError as error:
                self._fail(error)

    def close(self) -> None:
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None

    def _open(self) -> None:
        assert self._path is not None  # noqa: S101  for the type checker
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file = open(self._path, "ab", buffering=0, opener=_privately)  # noqa: SIM115
            self._written = self._file.tell()
        except OSError as error:
            self._fail(error)

    def _rotate(self) -> None:
        if self._path is None or self._file is None:
            return
        self._file.close()
        self._file = None
        try:
            for n in range(FILES - 1, 0, -1):
                older = self._path.with_name(f"{self._path.name}.{n - 1}") if n > 1 else self._path
                if older.exists():
                    older.replace(self._path.with_name(f"{self._path.name}.{n}"))
        except OSError as error:
            self._fail(error)
            return
        self._open()

    def _fail(self, error: OSError) -> None:
        self.error = f"cannot write {self._path}: {error.strerror}"
        if self._file is not None:
            self._file.close()
            self._file = None


def _privately(path: str, flags: int) -> int:
    import os

    return os.open(path, flags, 0o600)


class StartLog:
    """What one start printed. Lines come in another thread."""

    def __init__(self, kept: RotatingLog, secrets: Collection[str]) -> None:
        self.lines = 0
        self.sleeping = False
        self.leaving = False
        """It has been asked to end: it says so, and may then wait for its requests for ever."""
        self._kept = kept
        self._secrets = tuple(sorted(secrets, key=len, reverse=True))
        self._reader = LogReader()
        self._waiting: deque[tuple[int, str]] = deque(maxlen=KEPT_LINES)
        self._tail: deque[str] = deque(maxlen=TAIL)
        self._serving = False
        self._quoting = False
        self._held: dict[int, int] = {}
        self._speed: float | None = None
        self._lock = threading.Lock()

    def on_line(self, line: str) -> None:
        """Take one line."""
        for secret in self._secrets:
            if secret in line:
                line = line.replace(secret, _MASK)
        line = self._without_grammar(line)
        self._kept.write(line)
        line = line[:LONGEST_LINE]
        with self._lock:
            self.lines += 1
            self._tail.append(line)
            self._note(line)
            if self._serving:
                self._waiting.append((self.lines, line))
            else:
                self._reader.feed(line)

    def _without_grammar(self, line: str) -> str:
        """The line without what a client wrote."""
        if self._quoting and not _OWN.match(line):
            return _LEFT_OUT
        at = line.find(_GRAMMAR)
        self._quoting = at >= 0
        return f"{line[:at]}{_GRAMMAR} {_LEFT_OUT}" if self._quoting else line

    def _note(self, line: str) -> None:
        if "n_tokens = " in line and (held := _HELD.search(line)):
            self._held[int(held[1])] = int(held[2])
        elif "prompt eval time" in line and (read := _READ.search(line)):
            milliseconds, tokens = float(read[1]), int(read[2])
            if tokens >= _ENOUGH and milliseconds > 0:
                self._speed = 1000 * tokens / milliseconds
        elif "sleeping state" in line:
            self.sleeping = "entering" in line
            if self.sleeping:
                self._held.clear()
        elif _LEAVING in line:
            self.leaving = True

    def serves(self) -> None:
        """It has answered: from now on lines are read when it has died."""
        with self._lock:
            self._serving = True

    @property
    def ready(self) -> bool:
        """Whether it has said that its model is loaded."""
        with self._lock:
            return self._reader.ready

    @property
    def effective(self) -> Effective:
        with self._lock:
            return self._reader.effective

    @property
    def held(self) -> int | None:
        """Tokens of context in its slots; None if it never said."""
        with self._lock:
            return sum(self._held.values()) if self._held else None

    @property
    def speed(self) -> float | None:
        """Tokens of a prompt read per second, of the last one that was not short."""
        return self._speed

    def tail(self, count: int = TAIL) -> list[str]:
        """The last lines, as they came but for keys."""
        with self._lock:
            return list(self._tail)[-count:]

    def read(self, status: int | None) -> tuple[Reading, Phase | None]:
        """What the whole log says, and its last phase. Asked once, when it has died."""
        with self._lock:
            while self._waiting:
                number, line = self._waiting.popleft()
                self._reader.take(clean(line, number))
            return self._reader.readings(status)[0], self._reader.phase


def shown(lines: list[str], redactor: Redactor) -> tuple[str, ...]:
    """Log lines as they may be shown: without keys, prompts, paths and names."""
    return redactor.scrub(tuple(lines), share=True)
