"""Reading a whole log from bytes: any damage, any order, any size, in bounded memory.

Long logs say the same things over and over. Lines that differ only in their digits have one shape.
A shape that means nothing is looked at once, and one that only says that the server serves, once
between two lines that say something else. Everything else is read in full.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from typing import Final, TypeVar

import msgspec

from arriero.logs.grammar import Event, events
from arriero.logs.lines import (
    Wrapping,
    clean,
    continues,
    is_reversed,
    plain,
    strip_outer,
    wrapping,
)
from arriero.logs.model import Buffer, Failure, Notice, Reading
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

_Numbered = TypeVar("_Numbered", Failure, Buffer, Notice)

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
    numbered: Iterable[tuple[int, bytes]] = _numbered(head, blocks)
    backwards = is_reversed(sample)
    lines = 0
    if backwards:
        sample.reverse()
        numbered, lines = _turned(numbered, keep_all=len(head) < BLOCK)
    reader = LogReader()
    wrap = wrapping([plain(line) for line in sample])
    wrapped = False
    if wrap is None:
        _feed(reader, numbered)
    else:
        wrapped = _feed_joined(reader, numbered, wrap)
    how = ("reversed",) * backwards + ("wrapped",) * wrapped
    readings = reader.readings()
    if backwards:
        readings = tuple(_turn_back(reading, lines) for reading in readings)
    return tuple(_noting(reading, how) for reading in readings)


def _noting(reading: Reading, how: tuple[str, ...]) -> Reading:
    more = tuple(Notice(id=name, line=1, text="") for name in how)
    return msgspec.structs.replace(reading, notices=reading.notices + more)


def _blocks(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Whole lines in blocks of about ``BLOCK`` bytes; a line longer than ``LONGEST`` is cut."""
    parts: list[bytes] = []
    size = 0
    skipping = False
    first = True
    for raw in chunks:
        chunk = raw.replace(b"\0", b"") if b"\0" in raw else raw
        if first and chunk:
            chunk, first = _without_mark(chunk), False
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


def _without_mark(chunk: bytes) -> bytes:
    for mark in (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        chunk = chunk.removeprefix(mark)
    return chunk


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
        if raw[:1] == b"[":  # what one child of a router says, another has not said
            shape = raw[: raw.find(b"]", 0, 12)] + shape
        if shape in known:
            continue
        line = clean(_decode(raw), number)
        found = events(line.text)
        reader.take(line, found)
        if line.child is None or raw[:1] == b"[":
            shapes.learn(shape, raw, found)
        taken = number
    if taken < number:
        reader.take(clean(_decode(raw), number))


def _turned(
    numbered: Iterable[tuple[int, bytes]], *, keep_all: bool
) -> tuple[list[tuple[int, bytes]], int]:
    """The lines from the last to the first, numbered in that order, and how many there are.

    Of a long log only lines that mean something are kept.
    """
    shapes = _Shapes()
    kept: list[tuple[int, bytes]] = []
    number = 0
    for number, raw in numbered:
        if not keep_all:
            shape = raw.translate(None, _DIGITS)
            if shape in shapes.known or len(kept) >= MAX_KEPT:
                continue
            found = events(clean(_decode(raw), 0).text)
            shapes.learn(shape, raw, found)
            if not found:
                continue
        kept.append((number, raw[:LONGEST]))
    return [(number + 1 - at, raw) for at, raw in reversed(kept)], number


def _turn_back(reading: Reading, lines: int) -> Reading:
    """``reading`` of a turned log, with the line numbers of the file."""

    def of_file(item: _Numbered) -> _Numbered:
        return msgspec.structs.replace(item, line=lines + 1 - item.line)

    return msgspec.structs.replace(
        reading,
        failure=None if reading.failure is None else of_file(reading.failure),
        secondary=tuple(map(of_file, reading.secondary)),
        buffers=tuple(map(of_file, reading.buffers)),
        notices=tuple(map(of_file, reading.notices)),
    )


# --- wrapped lines ------------------------------------------------------------------------------


def _feed_joined(reader: LogReader, numbered: Iterable[tuple[int, bytes]], wrap: Wrapping) -> bool:
    """Feed all lines, joining what was broken. Whether any had to be joined."""
    joined = False
    pieces: list[tuple[int, str]] = []
    for number, raw in numbered:
        shown = plain(_decode(raw))
        full = len(pieces) >= MAX_PIECES
        if pieces and (full or not continues(pieces[-1][1], shown, wrap)):
            joined |= _feed_pieces(reader, pieces, wrap)
            pieces = []
        pieces.append((number, shown))
    return _feed_pieces(reader, pieces, wrap) or joined


def _feed_pieces(reader: LogReader, pieces: list[tuple[int, str]], wrap: Wrapping) -> bool:
    """Feed what may be the pieces of one line; joined only if a message goes across a seam."""
    if len(pieces) > 1:
        glue = " " if wrap.words else ""
        tails = [glue + strip_outer(piece) for _, piece in pieces[1:]]
        line = clean(pieces[0][1] + "".join(tails), pieces[0][0])
        end = len(line.text)
        seams = [end - len("".join(tails[n:]).rstrip()) for n in range(len(tails))]
        found = events(line.text)
        if any(first < seam < last for first, last in (e.span for e in found) for seam in seams):
            reader.take(line, found)
            return True
    for number, piece in pieces:
        reader.take(clean(piece, number))
    return False
