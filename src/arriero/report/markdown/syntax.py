"""GitHub-flavoured Markdown that renders as the text it was made of."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from arriero.report.view.text import command

_SPECIAL = re.compile(r"([\\`*_\[\]<>|~#&$])")
_TICKS = re.compile(r"`+")
_BAR = re.compile(r"(?<!\\)\|")
_ESCAPED = r"\\|"


def prose(text: str) -> str:
    """Text that renders as itself: no markup, no mention, no reference to an issue."""
    return _SPECIAL.sub(r"\\\1", text).replace("@", "@<!-- -->")


def code(text: str) -> str:
    """A code span, whatever backticks it holds."""
    if not text:
        return ""
    longest = max(map(len, _TICKS.findall(text)), default=0)
    ticks = "`" * (longest + 1)
    room = " " if longest or text[0] == " " or text[-1] == " " else ""
    return f"{ticks}{room}{text}{room}{ticks}"


def fence(lines: Iterable[str], language: str = "") -> str:
    text = "\n".join(lines)
    longest = max(map(len, _TICKS.findall(text)), default=0)
    ticks = "`" * max(3, longest + 1)
    return f"{ticks}{language}\n{text}\n{ticks}"


def shell(argv: Sequence[str], env: Mapping[str, str]) -> str:
    """A command in a block that pastes into a shell."""
    return fence(command(argv, env, width=100), "sh")


def grid(heads: Sequence[str], rows: Sequence[Sequence[str]], *, right: set[int]) -> str:
    """A table; cells are Markdown already, with bars inside code spans still to be escaped."""
    rule = ["--:" if index in right else "---" for index in range(len(heads))]
    lines = (" | ".join(_BAR.sub(_ESCAPED, cell) for cell in row) for row in (heads, rule, *rows))
    return "\n".join(f"| {line} |" for line in lines)
