"""Commands as text: split into words, joined again, and what only a shell would understand."""

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
    """Split a command written as text: continued lines and lines of comment are understood.

    Raises:
        UsageError: It holds what only a shell understands, or a quote is left open.
    """
    joined = re.sub(rf"({_QUOTED})|{_NO_WORD}", lambda found: found[1] or " ", text)
    expandable = re.sub(_QUOTED, lambda found: found[0] if found[0][0] == '"' else "''", joined)
    if unexpanded := _UNEXPANDED_IN_TEXT.search(expandable):
        raise UsageError(
            f"{unexpanded[1]} would need a shell to be filled in",
            hint="give the command without quotes around it, so that your shell fills it in",
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
            "a quote in the command is never closed", hint="close it", id="shell-syntax"
        ) from None


def join_words(words: Sequence[str], assigned: Sequence[int] = ()) -> str:
    """Words as one line for a shell; ``VAR=value`` words keep their ``=`` unquoted."""
    return " ".join(shell_words(words, assigned))


def shell_words(words: Sequence[str], assigned: Sequence[int] = ()) -> list[str]:
    """The words of such a line."""
    shown = []
    for at, word in enumerate(words):
        name, equals, value = word.partition("=")
        shown.append(f"{name}{equals}{quote(value)}" if at in assigned else quote(word))
    return shown


def check_stray(word: str) -> None:
    """Words that are no flag and no flag's value: did a shell's syntax get here as text?"""
    if not word.strip():
        raise UsageError(
            "a word of the command is empty or only white space",
            hint=r"a backslash that continues a line must be the last character of that line",
            id="shell-syntax",
        )
    if word.strip("\\ \r\n\t") == "":
        raise UsageError(
            "a backslash stands alone in the command",
            hint="take it out, or put the command on one line",
            id="shell-syntax",
        )
    if _OPERATOR.match(word):
        raise _shell_needed(word)
    if _UNEXPANDED.match(word):
        raise UsageError(
            f"{word} would need a shell to be filled in",
            hint="write out what it stands for, or leave out the quotes around it",
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
        f"the command holds {word}, which only a shell understands", hint=hint, id="shell-syntax"
    )
