"""Reading a whole log from bytes: any damage, any order, any size, in bounded memory.

Long logs say the same things over and over. Lines that differ only in their digits have one shape.
A shape that means nothing is looked at once, and one that only says that the server serves, once
between two lines that say something else. Everything else is read in full.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from arriero.logs.grammar import Event, events
from arriero.logs.lines import clean, continues, is_reversed, plain, strip_outer, wrap_width
from arriero.logs.model import Notice, Reading
from arriero.logs.reader import LogReader

BLOCK: Final = 1 << 20
LONGEST: Final = 1 << 16
"""Bytes of one line that are kept."""
SAMPLE: Final = 4000
"""Lines by which order and wrapping are told."""
MAX_SHAPES: Final = 20_000
MAX_KEPT: Final = 100_000
"""Lines kept of a long log that has to be turned around: the newest ones."""
MAX_PIECES: Final = 40
"""Pieces that one wrapped line can have been broken into."""

_DIGITS: Final = b"0123456789"
_TELLING_DIGITS: Final = (b"exit", b"status", b"ignal")
"""Words next to which the digits make the meaning."""
_REPEATED: Final = frozenset(("request", "request_old", "request_done", "idle", "reprocess"))
"""Rules of which one line says as much as a thousand."""


def read_log(chunks: Iterable[bytes]) -> tuple[Reading, ...]:
    """What the log in ``chunks`` says, as ``LogReader.readings``.

    Invalid UTF-8, NULs, UTF-16 of ASCII text, CRLF, colours, prefixes, wrapped lines and
    newest-first order are undone; line numbers are always those of the file.
    """
    blocks = _blocks(chunks)
    head = next(blocks, b"")
    sample = [_decode(line) for line in head.split(b"\n", SAMPLE)[:SAMPLE]]
    numbered = _numbered(head, blocks)
    how: list[str] = []
    if is_reversed(sample):
        how.append("reversed")
        sample.reverse()
        numbered = _turned(numbered, head)
    reader = LogReader()
    width = wrap_width([plain(line) for line in sample])
    if width is None:
        _feed(reader, numbered)
    elif _feed_joined(reader, numbered, width):
        how.append("wrapped")
    notices = tuple(Notice(id=name, line=1, text="") for name in how)
    return tuple(
        msgspec.structs.replace(reading, notices=reading.notices + notices)
        for reading in reader.readings()
    )


def _blocks(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Whole lines in blocks of about ``BLOCK`` bytes; a line longer than ``LONGEST`` is cut."""
    parts: list[bytes] = []
    size = 0
    skipping = False
    for raw in chunks:
        chunk = raw.replace(b"\0", b"") if b"\0" in raw else raw
        if skipping:
            at = chunk.find(b"\n")
            if at < 0:
                continue
            chunk, skipping = chunk[at:], False
        parts.append(chunk)
        size += len(chunk)
        if size < BLOCK:
            continue
        data = b"".join(parts)
        end = data.rfind(b"\n") + 1
        if end:
            yield data[:end]
        rest = data[end : end + LONGEST]
        skipping = len(data) - end > LONGEST
        parts, size = [rest], len(rest)
    if size:
        yield b"".join(parts)


def _numbered(head: bytes, blocks: Iterator[bytes]) -> Iterator[tuple[int, bytes]]:
    number = 0
    block: bytes | None = head
    while block is not None:
        lines = block.split(b"\n")
        if not lines[-1]:
            lines.pop()
        yield from enumerate(lines, start=number + 1)
        number += len(lines)
        block = next(blocks, None)


def _decode(line: bytes) -> str:
    return line[:LONGEST].decode("utf-8", "replace")


class _Shapes:
    """Which lines need not be read: ``known`` holds their shapes."""

    def __init__(self) -> None:
        self.known: set[bytes] = set()
        self._said: set[bytes] = set()

    def learn(self, shape: bytes, raw: bytes, found: list[Event]) -> None:
        if not found:
            if any(word in raw for word in _TELLING_DIGITS):
                return
        elif all(event.rule.id in _REPEATED for event in found):
            self._said.add(shape)
        else:
            self.known -= self._said
            self._said.clear()
            return
        if len(self.known) >= MAX_SHAPES:
            self.known.clear()
            self._said.clear()
        self.known.add(shape)


def _feed(reader: LogReader, numbered: Iterable[tuple[int, bytes]]) -> None:
    shapes = _Shapes()
    known = shapes.known
    number, raw = 0, b""
    taken = 0
    for number, raw in numbered:
        shape = raw.translate(None, _DIGITS)
        if shape in known:
            continue
        line = clean(_decode(raw), number)
        found = events(line.text)
        reader.take(line, found)
        shapes.learn(shape, raw, found)
        taken = number
    if taken < number:
        reader.take(clean(_decode(raw), number))


def _turned(numbered: Iterable[tuple[int, bytes]], head: bytes) -> Iterator[tuple[int, bytes]]:
    """The lines from the last to the first: all of a short log, of a long one those that mean
    something."""
    if len(head) < BLOCK:
        return iter(list(numbered)[::-1])
    shapes = _Shapes()
    kept: deque[tuple[int, bytes]] = deque()
    for number, raw in numbered:
        shape = raw.translate(None, _DIGITS)
        if shape in shapes.known:
            continue
        found = events(clean(_decode(raw), 0).text)
        shapes.learn(shape, raw, found)
        if found:
            kept.appendleft((number, raw[:LONGEST]))
        if len(kept) >= MAX_KEPT:
            break
    return iter(kept)


# --- wrapped lines ------------------------------------------------------------------------------


def _feed_joined(reader: LogReader, numbered: Iterable[tuple[int, bytes]], width: int) -> bool:
    """Feed all lines, joining what was broken at ``width``. Whether any had to be joined."""
    joined_any = False
    pieces: list[tuple[int, str]] = []
    glue: list[str] = []
    for number, raw in numbered:
        shown = plain(_decode(raw))
        join = continues(pieces[-1][1], shown, width) if pieces else None
        if join is None or len(pieces) >= MAX_PIECES:
            joined_any |= _feed_pieces(reader, pieces, glue)
            pieces, glue = [], []
        else:
            glue.append(join)
        pieces.append((number, shown))
    return _feed_pieces(reader, pieces, glue) or joined_any


def _feed_pieces(reader: LogReader, pieces: list[tuple[int, str]], glue: list[str]) -> bool:
    """Feed what may be the pieces of one line; joined only if a message goes across a seam."""
    if len(pieces) > 1:
        tails = [join + strip_outer(p) for join, (_, p) in zip(glue, pieces[1:], strict=True)]
        line = clean(pieces[0][1] + "".join(tails), pieces[0][0])
        end = len(line.text)
        seams = [end - len("".join(tails[n:]).rstrip()) for n in range(len(tails))]
        found = events(line.text)
        spans = [event.span for event in found]
        if any(first < seam < last for first, last in spans for seam in seams):
            reader.take(line, found)
            return True
    for number, piece in pieces:
        reader.take(clean(piece, number))
    return False
