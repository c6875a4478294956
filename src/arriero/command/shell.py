"""Commands as text: split into words, join them again, refuse what only a shell understands."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Final

from arriero.base.errors import UsageError
from arriero.base.paste import quote

_OPERATOR: Final = re.compile(r"[;&|<>()]|\d[<>]|.*[;&]\Z")
_UNEXPANDED: Final = re.compile(r"\$\{?[A-Za-z_]|\$\(|`|~[\w-]*(/|\Z)")
_QUOTED: Final = r"""'[^']*'|"(?:\\[\s\S]|[^"\\])*"|\\[^\r\n]"""
_NO_WORD: Final = r"[\\^`](?:\r?\n|\Z)|(?m:^[ \t]*#.*$)"
"""The end of a continued line (sh, cmd, PowerShell), and a comment."""
_UNEXPANDED_IN_TEXT: Final = re.compile(
    r"(?:^|(?<=[\s=\"/:]))(\$\{?[A-Za-z_]\w*\}?|\$\(|`|~[\w-]*(?:/\S*|(?=\s|\Z)))"
)
_WINDOWS_PATH: Final = re.compile(r"(?:^|[\s\"'])(?:[A-Za-z]:|\.)\\")


def split_text(text: str) -> tuple[str, ...]:
    """Split a command that is written as text, with continued lines and comments.

    Raises:
        UsageError: It contains syntax that only a shell understands, or a quote is not closed.
    """
    joined = re.sub(rf"({_QUOTED})|{_NO_WORD}", lambda found: found[1] or " ", text)
    expandable = re.sub(_QUOTED, lambda found: found[0] if found[0][0] == '"' else "''", joined)
    if unexpanded := _UNEXPANDED_IN_TEXT.search(expandable):
        raise UsageError(
            f"only a shell can replace {unexpanded[1]} by its value",
            hint="give the command without quotes around it, so that your shell does it",
            id="shell-syntax",
        )
    if operator := re.search(r"\d?[;&|<>()]+\S*", re.sub(_QUOTED, "''", joined)):
        raise _shell_needed(operator[0])
    lexer = shlex.shlex(joined, posix=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    if _WINDOWS_PATH.search(text):
        lexer.escape = ""
    try:
        return tuple(lexer)
    except ValueError:
        raise UsageError(
            "a quote in the command is not closed", hint="close it", id="shell-syntax"
        ) from None


def join_words(words: Sequence[str], assigned: Sequence[int] = ()) -> str:
    """Join words into one line for a shell; ``VAR=value`` words keep their ``=`` unquoted."""
    return " ".join(shell_words(words, assigned))


def shell_words(words: Sequence[str], assigned: Sequence[int] = ()) -> list[str]:
    """Quote the words for such a line."""
    shown = []
    for at, word in enumerate(words):
        name, equals, value = word.partition("=")
        shown.append(f"{name}{equals}{quote(value)}" if at in assigned else quote(word))
    return shown


def check_stray(word: str) -> None:
    """Refuse a word that is neither a flag nor a value if it looks like shell syntax."""
    if not word.strip():
        raise UsageError(
            "the command contains a word that is empty or only white space",
            hint=r"end a continued line with a backslash and nothing after it",
            id="shell-syntax",
        )
    if word.strip("\\ \r\n\t") == "":
        raise UsageError(
            "the command contains a single backslash",
            hint="remove it, or put the command on one line",
            id="shell-syntax",
        )
    if _OPERATOR.match(word):
        raise _shell_needed(word)
    if _UNEXPANDED.match(word):
        raise UsageError(
            f"only a shell can replace {word} by its value",
            hint="write its value instead, or leave out the quotes around it",
            id="shell-syntax",
        )


def _shell_needed(word: str) -> UsageError:
    if "<" in word or ">" in word:
        hint = "leave the redirection out: arriero reads the server's output itself"
    elif word.endswith("&") and not word.endswith("&&"):
        hint = "leave the & out: arriero starts the server and ends it"
    else:
        hint = "give the llama-server command alone"
    return UsageError(
        f"the command contains {word}, which only a shell understands", hint=hint, id="shell-syntax"
    )
