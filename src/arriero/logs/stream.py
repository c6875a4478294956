"""Reading a whole log from bytes: any damage, any order, any size, in bounded memory."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeVar

import msgspec

from arriero.logs.lines import MAX_LINE, clean, foreign_prefix, is_reversed, plain
from arriero.logs.model import Buffer, Failure, Notice, Reading
from arriero.logs.quoted import Listener, Manner, opening
from arriero.logs.reader import LogReader
from arriero.logs.shapes import LONGEST, Shapes, decode, feed, shape_of
from arriero.logs.wrapped import feed_joined, wrapping

BLOCK: Final = 1 << 20
SAMPLE: Final = 4000
"""Lines by which order and wrapping are told."""
MAX_KEPT: Final = 100_000
"""Lines kept of a long log that has to be turned around: the newest ones."""

_Numbered = TypeVar("_Numbered", Failure, Buffer, Notice)


def read_log(chunks: Iterable[bytes]) -> tuple[Reading, ...]:
    """What the log in ``chunks`` says, as ``LogReader.readings``.

    Invalid UTF-8, NULs, UTF-16 of ASCII text, CRLF, colours, prefixes, wrapped lines and
    newest-first order are undone; line numbers are always those of the file.
    """
    blocks = _blocks(chunks)
    head = next(blocks, b"")
    raws = head.split(b"\n", SAMPLE)[:SAMPLE]
    sample = [decode(line) for line in raws]
    own = _own(raws, sample)
    numbered: Iterable[tuple[int, bytes]] = _numbered(head, blocks)
    backwards = is_reversed(own)
    lines = 0
    if backwards:
        sample.reverse()
        numbered, lines = _turned(numbered, keep_all=len(head) < BLOCK)
    prefix = foreign_prefix([plain(line) for line in own])
    if prefix is not None:
        foreign = re.compile(f"^{prefix}".encode())
        sample = [decode(_with_known(foreign, line.encode())) for line in sample]
        numbered = ((number, _with_known(foreign, raw)) for number, raw in numbered)
    reader = LogReader()
    wrap = wrapping([plain(line) for line in sample])
    wrapped = False
    if wrap is None:
        feed(reader, numbered)
    else:
        wrapped = feed_joined(reader, numbered, wrap)
    how = ("reversed",) * backwards + ("wrapped",) * wrapped
    readings = reader.readings()
    if backwards:
        readings = tuple(_turn_back(reading, lines) for reading in readings)
    return tuple(_noting(reading, how) for reading in readings)


def _own(raws: Sequence[bytes], sample: Sequence[str]) -> list[str]:
    """The lines of a sample without those in which a server repeats a text of several lines."""
    listeners: dict[str | None, Listener[str]] = {}
    own: list[str] = []
    quiet: set[bytes] = set()
    opened = False
    for raw, shown in zip(raws, sample, strict=True):
        shape = shape_of(raw)
        if shape in quiet and not opened:
            own.append(shown)
            continue
        line = clean(shown, 0)
        listener = listeners.setdefault(line.child, Listener(MAX_LINE))
        heard = listener.hear(line.text, shown, Manner(stamp=line.stamp))
        own += (kept for kept, _ in heard)
        opened = any(one.opened for one in listeners.values())
        if not opened:
            quiet.add(shape)
    return own


def _with_known(foreign: re.Pattern[bytes], raw: bytes) -> bytes:
    """``raw`` with a prefix that ``clean`` knows, as wide as the foreign one: wraps show by it."""
    found = foreign.match(raw)
    if found is None:
        return raw
    width = len(decode(found[0]))
    return b"x".ljust(width - 2) + b"| " + raw[found.end() :] if width > 2 else raw[found.end() :]


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


def _turned(
    numbered: Iterable[tuple[int, bytes]], *, keep_all: bool
) -> tuple[list[tuple[int, bytes]], int]:
    """The lines from the last to the first, numbered in that order, and how many there are.

    Of a long log only lines that mean something are kept.
    """
    shapes = Shapes()
    kept: list[tuple[int, bytes]] = []
    number = 0
    for number, raw in numbered:
        if not keep_all:
            shape = shape_of(raw)
            if shape in shapes.skip or len(kept) >= MAX_KEPT:
                continue
            text = clean(decode(raw), 0).text
            found = shapes.events(shape, text)
            shapes.learn(shape, raw, found)
            if not found and opening(text) is None:
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
