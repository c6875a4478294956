"""``arriero explain``: what a log says, without starting anything."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

from arriero.base.errors import NotFoundError, UsageError
from arriero.logs import read_log
from arriero.logs.model import Reading
from arriero.record import Explanation

CHUNK: Final = 1 << 20


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
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", id="log-unreadable") from None


def explain_stream(stream: BinaryIO, source: str) -> Explanation:
    """Explain a log as it comes, in bounded memory."""
    return explain_chunks(_chunks(stream), source)


def explain_chunks(chunks: Iterable[bytes], source: str) -> Explanation:
    """Explain a log given as pieces of bytes."""
    readings = read_log(chunks)
    first, *others = (_explanation(reading, source) for reading in readings)
    if not others:
        return first
    import msgspec

    return msgspec.structs.replace(first, children=tuple(e for e in (first, *others) if e.child))


def _chunks(stream: BinaryIO) -> Iterator[bytes]:
    while chunk := stream.read(CHUNK):
        yield chunk


def _explanation(reading: Reading, source: str) -> Explanation:
    return Explanation(
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
