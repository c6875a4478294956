"""The values that a flag accepts, by the answers of engines to ``scripts/flag_values.py``.

llama-server reads a number as far as its digits go (``std::stoi``, ``std::stof``): ``64K`` is 64
and no error. Another rule reports that.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

FREE: Final = ("x", "-1", "99999999999", "a,b")
"""A flag that accepts all of these accepts every word."""
_NUMBERS: Final = (*range(-3, 9), 10, 99, 100, 101, 1000, 1024, 1025, 65535, 65536)
_WORDS: Final = ("on", "off", "auto", "true", "false", "enabled", "disabled", "none", "all")
PROBES: Final = (
    *FREE,
    *map(str, _NUMBERS),
    *_WORDS,
    *("1.5", "nan", "1,2", "1,b", "{}", "1x", "yes", "no", "default"),
)
_WHOLE: Final = re.compile(r"\s*[+-]?\d+")
_REAL: Final = re.compile(r"\s*[+-]?(?:\d+\.?\d*|\.\d+|inf(?:inity)?|nan)", re.IGNORECASE)
_PART: Final = re.compile(r"[,/]")


class Takes(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The values that one flag accepts.

    ``reads`` says how a number is read: ``whole`` (32 bits), ``long`` (64 bits, or a real number
    other than ``nan``), ``real``, ``list`` (of real numbers), ``json``, or ``word`` if only
    ``words`` are accepted. ``least`` and ``most`` are inclusive, and None if no limit is known;
    ``words`` are always accepted.
    """

    reads: str
    words: tuple[str, ...] = ()
    least: int | None = None
    most: int | None = None
    gap: int | None = None
    """A number between them that the engine refuses."""

    def told(self) -> str:
        """The accepted values, in words."""
        number = {"whole": "a whole number", "long": "a whole number", "real": "a number",
                  "list": "comma-separated numbers", "json": "JSON"}.get(self.reads)  # fmt: skip
        if number and self.least is not None and self.most is not None:
            number += f" from {self.least} to {self.most}"
        elif number and self.least is not None:
            number += f" from {self.least} up"
        if number and self.gap is not None:
            number += f" except {self.gap}"
        return ", ".join((*self.words, *((number,) if number else ())))

    def accepts(self, value: str) -> bool:
        """Whether the engine accepts the value."""
        if self.reads == "word":
            # Some flags accept a list of such words; the engine names the one that is wrong.
            return value in self.words
        if value in self.words:
            return True
        if self.reads == "json":
            return _is_json(value)
        if self.reads in ("real", "list"):
            parts = _PART.split(value) if self.reads == "list" else [value]
            parts = [part for part in parts if part] or [value]
            return all(_REAL.match(part) for part in parts) and self._above(parts[0])
        found = _WHOLE.match(value)
        if found is None:
            return False
        limit = 1 << (31 if self.reads == "whole" else 63)
        within = self._within if self.reads == "whole" else self._above
        return -limit <= int(found[0]) < limit and within(value)

    def _above(self, value: str) -> bool:
        """Only whole numbers were tried: numbers between two of them are assumed to be accepted."""
        found = _REAL.match(value)
        if self.least is None or found is None or re.match(r"\s*[+-]?0x", value, re.IGNORECASE):
            return True
        return not float(found[0]) <= self.least - 1

    def _within(self, value: str) -> bool:
        found = _WHOLE.match(value)
        if found is None:
            return True
        number = int(found[0])
        low = self.least is not None and number < self.least
        high = self.most is not None and number > self.most
        return not (low or high or number == self.gap)


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return False
    return True


def conclude(answers: Mapping[str, bool]) -> Takes | None:
    """The values that a flag accepts, from an engine's answers to :data:`PROBES` and its help.

    None if they are not numbers, JSON or a few words, but a path, an address or a pattern.
    """
    taken = {value for value, fine in answers.items() if fine}
    numbers = [number for number in _NUMBERS if str(number) in taken]
    words = tuple(v for v in answers if v in taken and re.fullmatch(r"[a-z][\w+-]*|[01]|-1", v))
    words = tuple(word for word in words if word != "nan")
    if len(numbers) < 4:
        named = [word for word in words if not re.fullmatch(r"[01]|-1", word)]
        return Takes(reads="word", words=words) if len(named) > 1 else None
    if "1x" not in taken or answers.get("x"):
        return Takes(reads="json", words=()) if "{}" in taken and "1x" not in taken else None
    reads = "whole" if "99999999999" not in taken else "real" if "nan" in taken else "long"
    if reads in ("real", "long") and "1,b" not in taken:
        reads = "list"
    least, most = min(numbers), max(numbers)
    inside = [n for n in _NUMBERS if least <= n <= most and n not in numbers]
    return Takes(
        reads=reads,
        words=tuple(word for word in words if not re.fullmatch(r"[01]|-1", word)),
        least=None if least == _NUMBERS[0] else least,
        most=None if most == _NUMBERS[-1] else most,
        gap=inside[0] if len(inside) == 1 else None,
    )


@functools.cache
def _tables() -> dict[str, dict[str, Takes]]:
    data = Path(__file__).with_name("values.json").read_bytes()
    return msgspec.json.decode(data, type=dict[str, dict[str, Takes]])


def takes(name: str, build: int | None) -> Takes | None:
    """The values that a flag accepts on a build; None if the flag was not tried.

    Args:
        name: The flag's first long name.
        build: The build; None means the newest known one. A build older than all known ones counts
            as the oldest.
    """
    tables = _tables()
    known = [b for b in map(int, tables) if build is None or b <= build] or [min(map(int, tables))]
    return tables[str(max(known))].get(name)
