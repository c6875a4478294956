"""``arriero explain``: what a log says, without starting anything."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from io import BufferedReader
from pathlib import Path
from typing import Final

import msgspec

from arriero.base.errors import NotFoundError, UsageError
from arriero.base.redact import Redactor
from arriero.logs import overall, read_log
from arriero.logs.model import Reading
from arriero.record import Explanation

CHUNK: Final = 1 << 20
_PACKED: Final = {
    b"\x1f\x8b": "zcat",
    b"BZh": "bzcat",
    b"\xfd7zXZ": "xzcat",
    b"\x28\xb5\x2f\xfd": "zstdcat",
    b"PK\x03\x04": "unzip -p",
}
"""First bytes of what is compressed, and what unpacks it to standard output."""


def explain_file(path: Path) -> Explanation:
    """Explain one log file.

    Raises:
        NotFoundError: There is no such file.
        UsageError: It cannot be read.
    """
    try:
        with path.open("rb") as file:
            return explain_stream(file, str(path))
    except FileNotFoundError:
        raise NotFoundError(f"no log file {path}", hint="- reads standard input") from None
    except (OSError, ValueError) as error:
        raise _unreadable(str(path), error) from None


def explain_stream(stream: BufferedReader, source: str) -> Explanation:
    """Explain a log as it comes, in bounded memory.

    A KeyboardInterrupt while waiting for more (``journalctl -f | arriero explain -``) ends the log:
    what had come by then is explained, with ``complete`` false.

    Raises:
        UsageError: It cannot be read, or is compressed.
    """
    chunks = _Chunks(stream, source)
    try:
        found = explain_chunks(chunks, source)
    except OSError as error:
        raise _unreadable("standard input" if source == "-" else source, error) from None
    return msgspec.structs.replace(found, complete=False) if chunks.interrupted else found


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
            what = "standard input" if self._source == "-" else self._source
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
    from arriero.advice.logged import logged  # late: a log that is fine needs none of them
    from arriero.gotchas import registry
    from arriero.gotchas.signs import known_in

    return msgspec.structs.replace(said, known=known_in(said, registry()), advice=logged(said))
