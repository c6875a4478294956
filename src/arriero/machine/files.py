"""Read small files of the kernel, with a limit on their size."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_CEILING: Final = 1 << 20


def text(path: Path) -> str:
    """The file's text; empty if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(_CEILING).decode(errors="replace")
    except OSError:
        return ""


def number(path: Path) -> int | None:
    """The number in a file that contains only a number; None if it cannot be read."""
    word = text(path).strip()
    return int(word) if word.isdecimal() and len(word) < 20 else None


def table(path: Path, separator: str | None = None) -> dict[str, int]:
    """Lines of ``key value`` (or ``key: value kB``, then in bytes); other lines are skipped."""
    result = {}
    for line in text(path).splitlines():
        key, _, rest = line.partition(separator or " ")
        words = rest.split()
        if words and words[0].isdecimal() and len(words[0]) < 20:
            unit = 1024 if words[1:] == ["kB"] else 1
            result[key.strip()] = int(words[0]) * unit
    return result
