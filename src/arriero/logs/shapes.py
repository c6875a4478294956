"""Lines by their shape: which of them need not be read, so that hours of serving cost little.

Long logs say the same things over and over. Lines that differ only in their digits have one shape.
A shape that means nothing is looked at once, and one that only says that the server serves, once
between two lines that say something else. Everything else is read in full.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import Final

from arriero.logs.grammar import RULES, Act, Event, Rule, events
from arriero.logs.lines import clean
from arriero.logs.reader import LogReader
from arriero.logs.story.cause import NEAR, bytes_of_mib

LONGEST: Final = 1 << 16
"""Bytes of one line that are kept."""
MAX_SHAPES: Final = 20_000
_DIGITS: Final = b"0123456789"
_TELLING_DIGITS: Final = (b"exit", b"status", b"ignal", b"request: ")
"""Words next to which the digits make the meaning."""
_HARMLESS: Final = frozenset((Act.STATE, Act.NOTICE, Act.SIZE, Act.TOTAL, Act.VALUE, Act.DEVICE))
_DIGIT_KEYS: Final = frozenset(rule.key for rule in RULES if any(map(str.isdigit, rule.key)))


def decode(line: bytes) -> str:
    """A line's text, whatever its bytes, and no more than ``LONGEST`` of them."""
    return line[:LONGEST].decode("utf-8", "replace")


class Shapes:
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


def shape_of(raw: bytes) -> bytes:
    """``raw`` without its digits, except for those of the child of a router that says it."""
    if raw[:1] == b"[":
        return raw[: raw.find(b"]", 0, 12)] + raw.translate(None, _DIGITS)
    return raw.translate(None, _DIGITS)


def feed(reader: LogReader, numbered: Iterable[tuple[int, bytes]]) -> None:
    """Give the reader the lines that are worth reading."""
    shapes = Shapes()
    skip, states = shapes.skip, shapes.states
    number, raw = 0, b""
    taken = 0
    listening = False
    passed = nothing = (-NEAR, b"")
    for number, raw in numbered:
        shape = raw.translate(None, _DIGITS) if raw[:1] != b"[" else shape_of(raw)
        if shape in skip and not listening:
            continue
        if shape in states and not listening and not shapes.is_larger(states[shape], raw):
            passed = (number, raw)
            continue
        if 0 < number - passed[0] <= NEAR:
            # what was done just before may tell what the next line is about
            reader.take(clean(decode(passed[1]), passed[0]))
            passed = nothing
        line = clean(decode(raw), number)
        found = shapes.events(shape, line.text)
        reader.take(line, found)
        was, listening = listening, reader.listening
        if not (was or listening) and (line.child is None or raw[:1] == b"["):
            shapes.learn(shape, raw, found)
        taken = number
    if taken < number:
        reader.take(clean(decode(raw), number))
