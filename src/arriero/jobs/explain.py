"""``arriero explain``: what a log says, without starting anything."""

from __future__ import annotations

import errno
import os
import select
import shlex
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from io import BufferedReader
from pathlib import Path
from typing import Final

import msgspec

from arriero.base.errors import NotFoundError, UsageError
from arriero.base.paths import StrPath
from arriero.base.redact import Redactor
from arriero.logs import overall, read_log
from arriero.logs.model import Reading
from arriero.record import Explanation

CHUNK: Final = 1 << 20
WRITER_SECONDS: Final = 30.0
"""How long a named pipe may wait for somebody who writes to it."""
_PACKED: Final = {
    b"\x1f\x8b": "zcat",
    b"BZh": "bzcat",
    b"\xfd7zXZ": "xzcat",
    b"\x28\xb5\x2f\xfd": "zstdcat",
    b"PK\x03\x04": "unzip -p",
}
"""First bytes of what is compressed, and what unpacks it to standard output."""


def explain(path: StrPath) -> Explanation:
    """Explain one log file.

    Raises:
        NotFoundError: There is no such file.
        UsageError: It cannot be read.
    """
    path = Path(path)
    try:
        with _opened(path) as file:
            return explain_stream(file, str(path))
    except FileNotFoundError:
        raise NotFoundError(f"no log file {path}", hint="- reads standard input") from None
    except (OSError, ValueError) as error:
        raise _unreadable(str(path), error) from None


def _opened(path: Path) -> BufferedReader:
    """The file, or the pipe once something was written to it."""
    file = open(path, "rb", opener=_at_once)  # noqa: SIM115  needs an opener; the caller's
    if sys.platform != "win32" and stat.S_ISFIFO(os.fstat(file.fileno()).st_mode):
        if not select.select([file], [], [], WRITER_SECONDS)[0]:
            file.close()
            raise OSError(errno.EINVAL, f"nobody wrote to this pipe for {WRITER_SECONDS:.0f} s")
        os.set_blocking(file.fileno(), True)
    return file


def _is_endless(stream: BufferedReader) -> bool:
    """Whether it is a device without an end, such as ``/dev/zero``."""
    endless = False
    if sys.platform != "win32":
        with suppress(OSError, ValueError):  # not a file of the system
            what = os.fstat(stream.fileno())
            null = os.stat(os.devnull).st_rdev  # noqa: PTH116
            endless = stat.S_ISCHR(what.st_mode) and what.st_rdev != null and not stream.isatty()
    return endless


def _at_once(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def explain_stream(stream: BufferedReader, source: str) -> Explanation:
    """Explain a log as it comes, in bounded memory.

    A KeyboardInterrupt while waiting for more (``journalctl -f | arriero explain -``) ends the log:
    what had come by then is explained, with ``complete`` false.

    Raises:
        UsageError: It cannot be read, or is compressed.
    """
    if _is_endless(stream):
        raise _unreadable(_called(source), OSError(errno.EINVAL, "it is a device, not a log"))
    chunks = _Chunks(stream, source)
    try:
        found = explain_chunks(chunks, source)
    except OSError as error:
        raise _unreadable(_called(source), error) from None
    return msgspec.structs.replace(found, complete=False) if chunks.interrupted else found


def _called(source: str) -> str:
    return "standard input" if source == "-" else source


def _unreadable(what: str, error: OSError | ValueError) -> UsageError:
    reason = getattr(error, "strerror", None) or str(error)
    return UsageError(
        f"cannot read {what}: {reason}", hint="give a log file, or - for input", id="log-unreadable"
    )


def explain_chunks(chunks: Iterable[bytes], source: str) -> Explanation:
    """Explain a log given as pieces of bytes.

    A router's log has one explanation for each child under ``children``; what decides is on top.
    Secrets are taken out of what it quotes.
    """
    readings = read_log(chunks)
    found = _explanation(overall(readings), source)
    if len(readings) > 1:
        children = tuple(_explanation(reading, source) for reading in readings if reading.child)
        found = msgspec.structs.replace(found, children=children)
    return Redactor().scrub(found)


class _Chunks:
    """Pieces of a stream as they come. A line of a live log must not wait for a whole piece."""

    def __init__(self, stream: BufferedReader, source: str) -> None:
        self._stream, self._source = stream, source
        self.interrupted = False

    def __iter__(self) -> Iterator[bytes]:
        chunk = self._next()
        unpack = next((tool for magic, tool in _PACKED.items() if chunk.startswith(magic)), None)
        if unpack is not None:
            what = _called(self._source)
            given = "FILE" if self._source == "-" else shlex.quote(self._source)
            raise UsageError(
                f"{what} is compressed",
                hint=f"{unpack} {given} | arriero explain -",
                id="log-compressed",
            )
        while chunk:
            yield chunk
            chunk = self._next()

    def _next(self) -> bytes:
        try:
            return self._stream.read1(CHUNK)
        except KeyboardInterrupt:
            self.interrupted = True
            return b""


def _explanation(reading: Reading, source: str) -> Explanation:
    said = Explanation(
        source=source,
        era=reading.era,
        child=reading.child,
        engine=reading.engine,
        outcome=reading.outcome,
        failure=reading.failure,
        secondary=reading.secondary,
        buffers=reading.buffers,
        notices=reading.notices,
        effective=reading.effective,
    )
    if said.failure is None and not said.notices:
        return said
    from arriero.advice import of_log  # late: a log that is fine needs none of them
    from arriero.gotchas import registry
    from arriero.gotchas.signs import known_in

    return msgspec.structs.replace(said, known=known_in(said, registry()), advice=of_log(said))
