"""Words as they can be pasted into a shell: bash, dash, zsh and fish read them alike.

Single quotes keep everything but a backslash (fish reads some of them there) and a single quote, so
both stand outside of the quotes, escaped. What acts on a terminal before a shell sees it (control
characters, among them the end of a bracketed paste) and what turns the direction of text is printed
by ``printf`` where the command runs.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Final

from arriero.base.late import pattern

_PLAIN: Final = pattern(r"[A-Za-z0-9@+:,./_-][A-Za-z0-9@%+=:,./_-]*\Z")
"""zsh looks up a command for a word that begins with ``=``."""
_PRINTED: Final = pattern(r"[A-Za-z0-9 _./:@+,=]")
_PIECES: Final = pattern(r"[\\']|[^\\']+")
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Categories of characters that are not printed as they are."""
_INSIDE: Final = r"[A-Za-z0-9_./:@%+,=-]*+"
_REFERENCE: Final = rf"\$(?:[A-Za-z_]\w*+|\{{[A-Za-z_]\w*+(?::?[-+?]{_INSIDE})?\}})"
_OPEN: Final = pattern(rf"(?>(?:{_INSIDE}{_REFERENCE})+){_INSIDE}\Z", re.ASCII)


def quote(word: str) -> str:
    """One word for a shell, which gives the program exactly this word."""
    if _PLAIN.match(word):
        return word
    if any(map(is_hidden, word)):
        # one piece: fish misreads an escape beside quotes that hold a command
        whole = word.rstrip("\n")
        ends = word[len(whole) :]  # which a shell cuts off what a command prints
        printed = "".join(c if _PRINTED.match(c) else _octal(c) for c in whole)
        return f"\"$(printf '{printed}')\"" + (f"'{ends}'" if ends else "")
    pieces = _PIECES.findall(word)
    return "".join(f"\\{one}" if one in "\\'" else f"'{one}'" for one in pieces) or "''"


def join(words: Sequence[str]) -> str:
    """Words as one line for a shell."""
    return " ".join(map(quote, words))


def is_hidden(char: str) -> bool:
    """Whether a character must not be printed as it is."""
    return unicodedata.category(char) in _HIDDEN


def referring(text: str) -> str | None:
    """A word that only names variables, in quotes so that a shell fills them in and does no more.

    Null where the text holds anything that a shell could take for more than a name.
    """
    inside = text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text
    return f'"{inside}"' if _OPEN.match(inside) else None


def _octal(char: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in char.encode("utf-8", "surrogateescape"))
