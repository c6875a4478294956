"""Sizes in bytes: parse what people type, print what they can compare with a log."""

from __future__ import annotations

import re
from typing import Final

from arriero.base.errors import UsageError

KIB: Final = 1 << 10
MIB: Final = 1 << 20
GIB: Final = 1 << 30

_UNITS: Final = {
    "": 1,
    "b": 1,
    "k": KIB,
    "kib": KIB,
    "m": MIB,
    "mib": MIB,
    "g": GIB,
    "gib": GIB,
    "t": GIB * 1024,
    "tib": GIB * 1024,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
}
_SIZE: Final = re.compile(r"\s*+(\d++(?:[.,]\d++)?)\s*+([A-Za-z]*+)\s*+\Z")
_DURATION: Final = re.compile(r"(?:(\d+)h)?(?:(\d+)m(?:in)?)?(?:(\d+(?:\.\d+)?)s?)?\Z")
_CEILING: Final = 1 << 60


def parse_size(text: str) -> int:
    """Read a size such as ``3.5GiB``, ``512M`` or ``4096`` and return bytes.

    ``K``, ``M``, ``G``, ``T`` and the ``iB`` forms are powers of 1024; ``kB``, ``MB``, ``GB`` and
    ``TB`` are powers of 1000.

    Raises:
        UsageError: The text is not a size, or is absurdly large.
    """
    match = _SIZE.match(text)
    factor = _UNITS.get(match.group(2).lower()) if match else None
    if match is None or factor is None:
        raise UsageError(
            f"{text!r} is not a size", hint="write it like 3.5GiB, 512MiB or a number of bytes"
        )
    value = int(float(match.group(1).replace(",", ".")) * factor)
    if value > _CEILING:
        raise UsageError(f"the size {text!r} is too large", hint="give at most 1024 PiB")
    return value


def parse_duration(text: str) -> float:
    """Read a duration such as ``90``, ``90s``, ``10m`` or ``1h30m`` and return seconds.

    Raises:
        UsageError: The text is not a duration above zero.
    """
    match = _DURATION.match(text.strip().lower())
    seconds = 0.0
    if match:
        hours, minutes, rest = match.groups()
        seconds = int(hours or 0) * 3600 + int(minutes or 0) * 60 + float(rest or 0)
    if seconds <= 0:
        raise UsageError(f"{text!r} is not a duration", hint="write it like 90s, 10m or 1h30m")
    return seconds


def mib(size: int, digits: int = 2) -> str:
    """Bytes as MiB with the precision of llama.cpp's own log lines (two digits)."""
    return f"{size / MIB:.{digits}f}"


def human(size: int) -> str:
    """Bytes as a short binary size with its unit: ``62.81 MiB``, ``3.50 GiB``."""
    sign, size = ("-", -size) if size < 0 else ("", size)
    if size < KIB:
        return f"{sign}{size} B"
    for unit, factor in (("KiB", KIB), ("MiB", MIB), ("GiB", GIB)):
        if size < factor * 1024:
            return f"{sign}{size / factor:.2f} {unit}"
    return f"{sign}{size / (GIB * 1024):.2f} TiB"
