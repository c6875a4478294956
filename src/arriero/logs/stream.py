"""Reading a whole log from bytes: any damage, any order, any size, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from arriero.logs.grammar import events
from arriero.logs.lines import clean, is_reversed, plain, strip_outer, wrap_width
from arriero.logs.model import Notice, Reading
from arriero.logs.reader import LogReader

HEAD = 1 << 20
"""Bytes that are looked at before deciding how a log is to be read."""


def read_log(chunks: Iterable[bytes]) -> tuple[Reading, ...]:
    """What the log in ``chunks`` says; see ``LogReader.readings``."""
    raws = [line.decode("utf-8", "replace") for line in b"".join(chunks).split(b"\n")]
    numbered = list(enumerate(raws, start=1))
    notices: list[str] = []
    if is_reversed(raws):
        numbered.reverse()
        notices.append("reversed")
    reader = LogReader()
    width = wrap_width([raw for _, raw in numbered])
    if width is not None:
        notices.append("wrapped")
    for number, raw in _joined(numbered, width):
        reader.take(clean(raw, number))
    return tuple(_with(reading, notices) for reading in reader.readings())


def _joined(numbered: list[tuple[int, str]], width: int | None) -> Iterator[tuple[int, str]]:
    if width is None:
        yield from numbered
        return
    at = 0
    while at < len(numbered):
        number, first = numbered[at]
        parts = [plain(first)]
        while len(parts[-1]) == width and at + len(parts) < len(numbered):
            parts.append(plain(numbered[at + len(parts)][1]))
        if len(parts) == 1:
            yield number, first
        else:
            joined = parts[0] + "".join(strip_outer(part) for part in parts[1:])
            text = clean(joined, number).text
            if events(text):
                yield number, joined
            else:
                yield from numbered[at : at + len(parts)]
        at += len(parts)


def _with(reading: Reading, notices: list[str]) -> Reading:
    if not notices:
        return reading
    import msgspec

    more = tuple(Notice(id=name, line=1, text="") for name in notices)
    return msgspec.structs.replace(reading, notices=reading.notices + more)
