"""What a stream that people read from can show."""

from __future__ import annotations

import os
from typing import TextIO, TypedDict


class Options(TypedDict):
    width: int
    colour: bool
    encoding: str


def options(stream: TextIO) -> Options:
    """How to print on ``stream``: 80 columns without colour unless it is a terminal."""
    width, colour = 80, False
    if stream.isatty():
        try:
            width = os.get_terminal_size(stream.fileno()).columns or 80
        except (OSError, ValueError):
            width = 80
        colour = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return Options(width=max(width, 20), colour=colour, encoding=stream.encoding or "ascii")
