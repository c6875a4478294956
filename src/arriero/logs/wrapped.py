"""Lines that a terminal or a paste broke: joined where a message goes across a seam."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice, pairwise
from typing import Final

from arriero.logs.grammar import Event, events
from arriero.logs.lines import (
    Line,
    Wrapping,
    clean,
    continues,
    plain,
    relayed,
    strip_outer,
    wrappings,
)
from arriero.logs.reader import LogReader
from arriero.logs.shapes import decode

MAX_SEAMS: Final = 200
"""Seams of each kind that are looked at to tell how lines were broken."""
MAX_PIECES: Final = 40
"""Pieces that one wrapped line can have been broken into."""


def feed_joined(reader: LogReader, numbered: Iterable[tuple[int, bytes]], wrap: Wrapping) -> bool:
    """Feed all lines, joining what was broken. Whether any had to be joined."""
    joined = False
    pieces: list[tuple[int, str]] = []
    for number, raw in numbered:
        shown = plain(decode(raw))
        full = len(pieces) >= MAX_PIECES
        if pieces and (full or not continues(pieces[-1][1], shown, wrap)):
            joined |= _feed_pieces(reader, pieces, wrap)
            pieces = []
        pieces.append((number, shown))
    return _feed_pieces(reader, pieces, wrap) or joined


def wrapping(shown: list[str]) -> Wrapping | None:
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
