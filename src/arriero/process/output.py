"""Output of a process, cut into lines, without blocking the process and with bounded memory."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

from arriero.process.model import ProcessError

LINE_CEILING: Final = 1 << 16
"""Bytes kept of one line; the rest is dropped."""
BACKLOG_CEILING: Final = 8 << 20
"""Bytes waiting for a slow reader; beyond that the oldest are dropped."""
LOG_CEILING: Final = 64 << 20
"""Bytes written to a log file; later output is not written there."""


class LineSplitter:
    """Chunks of bytes in, lines of text out. Invalid UTF-8 is replaced, line ends are removed."""

    def __init__(self) -> None:
        self._rest = b""
        self._dropping = False

    def feed(self, chunk: bytes) -> Iterator[str]:
        """The lines that are complete with this chunk."""
        *whole, rest = chunk.split(b"\n")
        for part in whole:
            yield from self._close(part)
        self._rest = self._rest if self._dropping else self._rest + rest
        if len(self._rest) > LINE_CEILING:
            self._rest = self._rest[:LINE_CEILING]
            self._dropping = True

    def finish(self) -> Iterator[str]:
        """The last line, if it had no end."""
        if self._rest:
            yield from self._close(b"")

    def _close(self, part: bytes) -> Iterator[str]:
        line = self._rest if self._dropping else (self._rest + part)[:LINE_CEILING]
        self._rest = b""
        self._dropping = False
        yield line.removesuffix(b"\r").decode(errors="replace")


class Output:
    """Takes the output of a process and passes it line by line to ``on_line``, in its own thread.

    `put` never waits: if ``on_line`` is slower than the process, the oldest waiting bytes are
    dropped (``dropped`` counts them); the other lines keep their order. The log file gets the
    beginning of the output, up to a limit. After an exception from ``on_line``, kept in ``error``,
    no more lines are passed.
    """

    def __init__(self, on_line: Callable[[str], None], log_file: Path | None) -> None:
        self._on_line = on_line
        self._chunks: deque[bytes] = deque()
        self._waiting = 0
        self._finished = False
        self._change = threading.Condition()
        self._log = open_log(log_file) if log_file else None
        self._logged = 0
        self.dropped = 0
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._hand_over, name="output", daemon=True)
        self._thread.start()

    def put(self, chunk: bytes) -> None:
        self._write_log(chunk)
        with self._change:
            self._chunks.append(chunk)
            self._waiting += len(chunk)
            while self._waiting > BACKLOG_CEILING:
                oldest = self._chunks.popleft()
                self._waiting -= len(oldest)
                self.dropped += len(oldest)
            self._change.notify()

    def finish(self) -> None:
        """Signal the end of the output; returns when every line has been passed on."""
        with self._change:
            self._finished = True
            self._change.notify()
        self._thread.join()
        if self._log:
            self._log.close()

    def _write_log(self, chunk: bytes) -> None:
        if self._log is None or self._logged >= LOG_CEILING:
            return
        kept = chunk[: LOG_CEILING - self._logged]
        self._logged += len(kept)
        try:
            self._log.write(kept)
            if self._logged >= LOG_CEILING:
                self._log.write(b"\n[output beyond this point was not kept]\n")
        except OSError:
            # A full disk must not end the run: the lines still reach on_line.
            self._logged = LOG_CEILING

    def _take(self) -> bytes | None:
        with self._change:
            while not self._chunks and not self._finished:
                self._change.wait()
            if not self._chunks:
                return None
            chunk = self._chunks.popleft()
            self._waiting -= len(chunk)
            return chunk

    def _hand_over(self) -> None:
        splitter = LineSplitter()
        try:
            while (chunk := self._take()) is not None:
                for line in splitter.feed(chunk):
                    self._on_line(line)
            for line in splitter.finish():
                self._on_line(line)
        except BaseException as error:  # noqa: BLE001 - told to whoever waits for the process
            self.error = error
            while self._take() is not None:
                pass


def open_log(path: Path) -> BinaryIO:
    """A log file to write, unbuffered.

    Raises:
        ProcessError: It cannot be made.
    """
    try:
        return path.open("wb", buffering=0)
    except OSError as error:
        raise ProcessError(
            f"cannot write the log file {path}: {error.strerror}",
            hint="choose another directory",
            id="log-file",
        ) from error
