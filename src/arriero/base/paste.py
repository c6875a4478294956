"""Quote words so that they can be pasted into bash, dash, zsh and fish with the same meaning.

Single quotes keep everything except a backslash (fish interprets some of them there) and a single
quote, so both are escaped outside the quotes. Characters that act on the terminal before the shell
sees them (control characters, among them the end of a bracketed paste), and those that change the
direction of text, are produced by ``printf`` when the command runs.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Final

from arriero.base.late import pattern

_PLAIN: Final = pattern(r"[A-Za-z0-9@+:,./_-][A-Za-z0-9@%+=:,./_-]*\Z")
"""zsh replaces a word that begins with ``=`` by the path of a command."""
_PRINTED: Final = pattern(r"[A-Za-z0-9 _./:@+,=]")
_PIECES: Final = pattern(r"[\\']|[^\\']+")
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Categories of characters that must not be printed as they are."""
_INSIDE: Final = r"[A-Za-z0-9_./:@%+,=-]*+"
_REFERENCE: Final = rf"\$(?:[A-Za-z_]\w*+|\{{[A-Za-z_]\w*+(?::?[-+?]{_INSIDE})?\}})"
_OPEN: Final = pattern(rf"(?>(?:{_INSIDE}{_REFERENCE})+){_INSIDE}\Z", re.ASCII)


def quote(word: str) -> str:
    """Quote one word so that the program gets exactly this word from the shell."""
    if _PLAIN.match(word):
        return word
    if any(map(is_hidden, word)):
        # one piece: fish misreads an escape next to quotes that contain a command
        whole = word.rstrip("\n")
        ends = word[len(whole) :]  # a shell removes these from the output of a command
        printed = "".join(c if _PRINTED.match(c) else _octal(c) for c in whole)
        return f"\"$(printf '{printed}')\"" + (f"'{ends}'" if ends else "")
    pieces = _PIECES.findall(word)
    return "".join(f"\\{one}" if one in "\\'" else f"'{one}'" for one in pieces) or "''"


def join(words: Sequence[str]) -> str:
    """Quote the words and join them into one line for a shell."""
    return " ".join(map(quote, words))


def is_hidden(char: str) -> bool:
    """Whether a character must not be printed as it is."""
    return unicodedata.category(char) in _HIDDEN


def referring(text: str) -> str | None:
    """A word that only names variables, quoted so that a shell replaces them and does no more.

    None if the text contains anything that a shell could interpret beyond a variable's name.
    """
    inside = text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text
    return f'"{inside}"' if _OPEN.match(inside) else None


def _octal(char: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in char.encode("utf-8", "surrogateescape"))
