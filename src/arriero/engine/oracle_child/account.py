"""What the engine logs, what it allocates, and which allocation is what its log says."""

from __future__ import annotations

import os
import re
from collections import deque
from typing import Final

_ERROR: Final = 4
"""The level of an error in the engine's log."""
_LINE_MAX: Final = 300
_LINES_MAX: Final = 1000
_CLAIM: Final = re.compile(
    r":\s+(?P<name>\S+)\s+(?P<what>RS|output) buffer size =\s*(?P<mib>[0-9.]+) MiB"
)


class Account:
    """Log and allocations since the last `forget`.

    ``claimed`` has the bytes of recurrent state (``RS``) and of output by buffer type; ``doubt``
    says which of them is not what the log says of it.
    """

    def __init__(self) -> None:
        self.lines: deque[str] = deque(maxlen=_LINES_MAX)
        self.errors: deque[str] = deque(maxlen=8)
        self.allocated: list[tuple[str, int]] = []
        self.claimed: dict[str, dict[str, int]] = {"RS": {}, "output": {}}
        self.doubt = ""
        self._partial = ""

    def hear(self, level: int, text: bytes | None, _data: object) -> None:
        """One piece of the log: a line, a part of one, or several."""
        self._partial += (text or b"").decode("utf-8", "replace")
        *whole, rest = self._partial.split("\n")
        self._partial = rest[:_LINE_MAX]
        for line in whole:
            self.lines.append(line[:_LINE_MAX])
            if level == _ERROR and line.strip():
                self.errors.append(line[:_LINE_MAX])
                # Should this be the engine's last word before it aborts, it must not be lost.
                os.write(2, f"{line[:_LINE_MAX]}\n".encode())
            if match := _CLAIM.search(line):
                self._claim(match["what"], match["name"], float(match["mib"]))

    def _claim(self, what: str, name: str, mib: float) -> None:
        """Give the allocations since the last claim their meaning, if their sum is what is said."""
        size = sum(n for buft, n in self.allocated if buft == name)
        if not says(mib, size):
            self.doubt = f"{what} buffer of {mib} MiB is not the {size} bytes asked for"
        self.claimed[what][name] = self.claimed[what].get(name, 0) + size
        self.allocated = [(buft, n) for buft, n in self.allocated if buft != name]

    def forget(self) -> None:
        """Start a new story: what is logged and allocated from here on belongs to what follows."""
        self.lines.clear()
        self.errors.clear()
        self.allocated.clear()
        self.claimed = {"RS": {}, "output": {}}
        self.doubt = ""

    def complaint(self, otherwise: str) -> str:
        """The engine's own last words on an error, or ours."""
        return " / ".join(self.errors) or otherwise


def says(mib: float, size: int) -> bool:
    """Whether a figure in the log, in MiB with two decimals, can mean ``size`` bytes."""
    return abs(mib - size / (1 << 20)) <= 0.0051
