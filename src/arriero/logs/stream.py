"""Reading a whole log from bytes: any damage, any order, any size, in bounded memory.

Long logs say the same things over and over. Lines that differ only in their digits have one shape.
A shape that means nothing is looked at once, and one that only says that the server serves, once
between two lines that say something else. Everything else is read in full.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import islice, pairwise
from typing import Final, TypeVar

import msgspec

from arriero.logs.grammar import RULES, Act, Event, Rule, events
from arriero.logs.lines import (
    MAX_LINE,
    Line,
    Wrapping,
    clean,
    continues,
    foreign_prefix,
    is_reversed,
    plain,
    relayed,
    strip_outer,
    wrappings,
)
from arriero.logs.model import Buffer, Failure, Notice, Reading
from arriero.logs.quoted import Listener, Manner, opening
from arriero.logs.reader import LogReader
from arriero.logs.story.cause import NEAR, bytes_of_mib

BLOCK: Final = 1 << 20
LONGEST: Final = 1 << 16
"""Bytes of one line that are kept."""
SAMPLE: Final = 4000
"""Lines by which order and wrapping are told."""
MAX_SHAPES: Final = 20_000
MAX_KEPT: Final = 100_000
"""Lines kept of a long log that has to be turned around: the newest ones."""
MAX_SEAMS: Final = 200
"""Seams of each kind that are looked at to tell how lines were broken."""
MAX_PIECES: Final = 40
"""Pieces that one wrapped line can have been broken into."""

_Numbered = TypeVar("_Numbered", Failure, Buffer, Notice)

_DIGITS: Final = b"0123456789"
_TELLING_DIGITS: Final = (b"exit", b"status", b"ignal", b"request: ")
"""Words next to which the digits make the meaning."""
_HARMLESS: Final = frozenset((Act.STATE, Act.NOTICE, Act.SIZE, Act.TOTAL, Act.VALUE, Act.DEVICE))
_DIGIT_KEYS: Final = frozenset(rule.key for rule in RULES if any(map(str.isdigit, rule.key)))


def read_log(chunks: Iterable[bytes]) -> tuple[Reading, ...]:
    """What the log in ``chunks`` says, as ``LogReader.readings``.

    Invalid UTF-8, NULs, UTF-16 of ASCII text, CRLF, colours, prefixes, wrapped lines and
    newest-first order are undone; line numbers are always those of the file.
    """
    blocks = _blocks(chunks)
    head = next(blocks, b"")
    raws = head.split(b"\n", SAMPLE)[:SAMPLE]
    sample = [_decode(line) for line in raws]
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
        sample = [_decode(_with_known(foreign, line.encode())) for line in sample]
        numbered = ((number, _with_known(foreign, raw)) for number, raw in numbered)
    reader = LogReader()
    wrap = _wrapping([plain(line) for line in sample])
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


def _own(raws: Sequence[bytes], sample: Sequence[str]) -> list[str]:
    """The lines of a sample without those in which a server repeats a text of several lines."""
    listeners: dict[str | None, Listener[str]] = {}
    own: list[str] = []
    quiet: set[bytes] = set()
    opened = False
    for raw, shown in zip(raws, sample, strict=True):
        shape = _shape(raw)
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
    width = len(_decode(found[0]))
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


def _decode(line: bytes) -> str:
    return line[:LONGEST].decode("utf-8", "replace")


class _Shapes:
    """What is known of lines by their shape: which need not be read, which rules can fit others."""

    def __init__(self) -> None:
        self.skip: set[bytes] = set()
        self._said: set[bytes] = set()
        self._rules: dict[bytes, tuple[Rule, ...]] = {}
        self.states: dict[bytes, re.Pattern[bytes]] = {}
        """Shapes of lines about saved state: only a larger state than before is worth reading."""
        self._largest: dict[re.Pattern[bytes], int] = {}

    def is_larger(self, pattern: re.Pattern[bytes], raw: bytes) -> bool:
        """Whether this line tells of more saved state than those before it."""
        facts = pattern.search(raw)
        if facts is None:
            return True
        groups = facts.groupdict()
        size = bytes_of_mib((groups["mib"] or b"0").decode()) * int(groups.get("count") or 1)
        if size <= self._largest.get(pattern, -1):
            return False
        self._largest[pattern] = size
        return True

    def events(self, shape: bytes, text: str) -> list[Event]:
        """As ``grammar.events``, trying only rules whose key a line of this shape can hold."""
        rules = self._rules.get(shape)
        if rules is None:
            rules = tuple(rule for rule in RULES if rule.key in text or rule.key in _DIGIT_KEYS)
            if len(self._rules) >= MAX_SHAPES:
                self._rules.clear()
            self._rules[shape] = rules
        return events(text, rules)

    def learn(self, shape: bytes, raw: bytes, found: list[Event]) -> None:
        """Decide whether lines of this shape need to be read again."""
        if not found:
            if any(word in raw for word in _TELLING_DIGITS):
                return
        elif all(event.rule.often for event in found):
            self._said.add(shape)
        else:
            if any(event.rule.act not in _HARMLESS for event in found):
                # whether it still serves is worth hearing again
                self.skip -= self._said
                self._said.clear()
            if found[0].rule.act is Act.STATE and len(self.states) < MAX_SHAPES:
                self.states[shape] = _as_bytes(found[0].rule)
            return
        if len(self.skip) >= MAX_SHAPES:
            self.skip.clear()
            self._said.clear()
        self.skip.add(shape)


@cache
def _as_bytes(rule: Rule) -> re.Pattern[bytes]:
    return re.compile(rule.pattern.pattern.encode())


def _shape(raw: bytes) -> bytes:
    """``raw`` without its digits, except for those of the child of a router that says it."""
    if raw[:1] == b"[":
        return raw[: raw.find(b"]", 0, 12)] + raw.translate(None, _DIGITS)
    return raw.translate(None, _DIGITS)


def _feed(reader: LogReader, numbered: Iterable[tuple[int, bytes]]) -> None:
    shapes = _Shapes()
    skip, states = shapes.skip, shapes.states
    number, raw = 0, b""
    taken = 0
    listening = False
    passed = nothing = (-NEAR, b"")
    for number, raw in numbered:
        shape = raw.translate(None, _DIGITS) if raw[:1] != b"[" else _shape(raw)
        if shape in skip and not listening:
            continue
        if shape in states and not listening and not shapes.is_larger(states[shape], raw):
            passed = (number, raw)
            continue
        if 0 < number - passed[0] <= NEAR:
            # what was done just before may tell what the next line is about
            reader.take(clean(_decode(passed[1]), passed[0]))
            passed = nothing
        line = clean(_decode(raw), number)
        found = shapes.events(shape, line.text)
        reader.take(line, found)
        was, listening = listening, reader.listening
        if not (was or listening) and (line.child is None or raw[:1] == b"["):
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
            shape = _shape(raw)
            if shape in shapes.skip or len(kept) >= MAX_KEPT:
                continue
            text = clean(_decode(raw), 0).text
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


def _wrapping(shown: list[str]) -> Wrapping | None:
    """How these plain lines were broken, told by the messages that go across seams."""
    ways = wrappings(shown)

    def told(wrap: Wrapping, *, full: bool) -> bool:
        pairs = (
            ((1, a), (2, b))
            for a, b in pairwise(shown)
            if (len(a) == wrap.width) is full and continues(a, b, wrap)
        )
        return any(_join(pair, wrap) is not None for pair in islice(pairs, MAX_SEAMS))

    # a line that is not full can only have been broken between words, a full one either way
    signs = [(wrap, full) for full in (False, True) for wrap in sorted(ways, key=lambda w: w.words)]
    found = (wrap for wrap, full in signs if told(wrap, full=full))
    return next(found, ways[0] if ways else None)


def _join(pieces: Sequence[tuple[int, str]], wrap: Wrapping) -> tuple[Line, list[Event]] | None:
    """The line of which these are the pieces, if a message goes across a seam."""
    glue = " " if wrap.words else ""
    tails = [glue + tail for tail in _tails(pieces)]
    line = clean(pieces[0][1] + "".join(tails), pieces[0][0])
    end = len(line.text)
    seams = [end - len("".join(tails[n:]).rstrip()) for n in range(len(tails))]
    at = 0
    for part in relayed(line.text):
        at = line.text.index(part, at)
        spans = [(at + first, at + last) for first, last in (e.span for e in events(part))]
        if any(first < seam < last for first, last in spans for seam in seams):
            return line, events(line.text)
    return None


def _tails(pieces: Sequence[tuple[int, str]]) -> list[str]:
    """What the first of these pieces goes on with: a figure there is no line's number."""
    numbered = _NUMBERED.match(pieces[0][1]) is not None
    return [strip_outer(piece, numbered=numbered) for _, piece in pieces[1:]]


_NUMBERED: Final = re.compile(r"\s*\d{1,7}[:\s-]")


def _feed_pieces(reader: LogReader, pieces: list[tuple[int, str]], wrap: Wrapping) -> bool:
    """Feed what may be the pieces of one line; joined only if a message goes across a seam."""
    if len(pieces) > 1:
        joined = _join(pieces, wrap)
        parts = [] if joined is None else relayed(joined[0].text)
        told = [event.rule for part in parts for event in events(part)]
        for cut in range(2, len(pieces) - 1) if told else ():
            # a line may be as long as the width by chance: two messages, each across its own seams
            last = _join(pieces[cut:], wrap)
            if last is not None and last[1][0].rule not in told:
                _feed_pieces(reader, pieces[:cut], wrap)
                return _feed_pieces(reader, pieces[cut:], wrap)
        if joined is None and any(e.rule.open for e in events(clean(pieces[0][1], 0).text)):
            glue = " " if wrap.words else ""
            whole = glue.join([pieces[0][1], *_tails(pieces)])
            line = clean(whole, pieces[0][0])
            joined = line, events(line.text)
        if joined is not None:
            reader.take(*joined)
            return True
    child: str | None = None
    for number, piece in pieces:
        line = clean(piece, number)
        child = line.child or child
        reader.take(replace(line, child=child))
    return False
