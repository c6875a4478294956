"""Text in character cells: measuring, wrapping, cleaning and shell quoting."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from arriero.base.paste import is_hidden, quote

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)\Z", re.DOTALL)
_WIDER: Final = "\ufe0f"
"""After a sign, it is shown as a picture of two cells."""
_ASCII = str.maketrans(
    {"×": "x", "·": "|", "–": "-", "→": ">", "←": "<", "…": "~", "≤": "<", "−": "-"}
)


def printable(text: str) -> str:
    """``text`` on one line, with control and direction characters made visible.

    Log lines and model names come from strangers: an escape sequence among them must not reach
    the reader's terminal.
    """
    return "".join(
        " " if char in "\t\r\n" else _escaped(char) if is_hidden(char) else char for char in text
    )


def _escaped(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def encoded(text: str, encoding: str, *, exact: bool = False) -> str:
    """``text`` with only what ``encoding`` can print; our own marks become plain ones.

    Args:
        text: Any text.
        encoding: Name of the output's encoding.
        exact: Escape instead of replacing, for text that will be pasted into a shell.
    """
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        text = text if exact else text.translate(_ASCII)
        return text.encode(encoding, "backslashreplace").decode(encoding)
    return text


def cells(text: str) -> int:
    """Columns that ``text`` takes in a terminal."""
    if text.translate(_ASCII).isascii():  # our own marks are one wide
        return len(text)
    from rich.cells import cell_len  # late: its tables take longer to load than most commands

    return cell_len(text)


def _fitting(text: str, width: int) -> int:
    """How many characters of ``text`` fit into ``width`` cells, from its start."""
    used = 0
    for index, char in enumerate(text):
        wider = char == _WIDER and index > 0
        used += cells(text[index - 1] + char) - cells(text[index - 1]) if wider else cells(char)
        if used > width:
            return index
    return len(text)


def cut(text: str, width: int) -> str:
    """The start of ``text`` in at most ``width`` cells, with an ellipsis where it was cut."""
    if cells(text) <= width:
        return text
    return text[: _fitting(text, width - 1)] + "…" * (width > 0)


def pad(text: str, width: int, *, right: bool = False) -> str:
    """``text`` cut or filled to exactly ``width`` cells."""
    text = cut(text, width)
    fill = " " * (width - cells(text))
    return fill + text if right else text + fill


def wrap(text: str, width: int, *, first: str = "", rest: str | None = None) -> list[str]:
    """``text`` as lines of at most ``width`` cells, begun with ``first``, then with ``rest``."""
    rest = " " * cells(first) if rest is None else rest
    lines: list[str] = []
    line, empty = first, True
    for word in text.split():
        if not empty and cells(line) + 1 + cells(word) > width:
            lines.append(line)
            line, empty = rest, True
        while word and cells(line) + (not empty) + cells(word) > width:
            head = word[: max(1, _fitting(word, max(1, width - cells(line))))]
            lines.append(line + head)
            line, word = rest, word[len(head) :]
        line = line + word if empty else f"{line} {word}"
        empty = False
    return [*lines, line.rstrip()]


def words(argv: Sequence[str], env: Mapping[str, str] | None = None) -> list[str]:
    """A command as shell words, assignments first and quoted as assignments."""
    shown = [f"{name}={quote(value)}" for name, value in (env or {}).items()]
    leading = True
    for argument in argv:
        match = _ASSIGNMENT.match(argument) if leading else None
        leading = match is not None
        shown.append(f"{match[1]}={quote(match[2])}" if match else quote(argument))
    return shown


def command(
    argv: Sequence[str],
    env: Mapping[str, str] | None = None,
    *,
    width: int,
    indent: str = "",
) -> list[str]:
    r"""A command as lines that paste into a shell as they stand.

    Words are never broken: a line is ended by `` \`` before it gets longer than ``width``, and
    only a single word longer than that sticks out. A flag and its value stay together.
    """
    return spelled_lines(words(argv, env), width=width, indent=indent)


def spelled_lines(spelled: Sequence[str], *, width: int, indent: str = "") -> list[str]:
    """The same of words that are quoted already."""
    lines: list[str] = []
    line = indent
    for group in _groups(spelled):
        whole = " ".join(group)
        # Where even flag and value do not fit on one line, each gets its own.
        fits = cells(indent) + 2 + cells(whole) + 2 <= width
        for word in (whole,) if fits else group:
            if line.strip() and cells(line) + 1 + cells(word) + 2 > width:
                lines.append(line + " \\")
                line = indent + "  " + word
            else:
                line = f"{line} {word}" if line.strip() else indent + word
    return [*lines, line]


def _groups(shown: Iterable[str]) -> list[list[str]]:
    groups: list[list[str]] = []
    flag = False
    for word in shown:
        if flag and not word.startswith("-"):
            groups[-1].append(word)
            flag = False
        else:
            groups.append([word])
            flag = word.startswith("-")
    return groups
