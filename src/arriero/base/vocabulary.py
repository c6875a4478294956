"""Text of known words: what is shared holds no word that Arriero itself could not have written.

What is private cannot be listed, what is known can: a word is known if the package holds it, in its
table of messages, its flags, its sentences. Of the rest of a text figures stay, and signs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from functools import cache
from importlib import resources
from typing import Final

from arriero.base.late import pattern

ELIDED: Final = "…"
"""What stands for words that are not known."""

_PIECE: Final = pattern(r"[A-Z]{2,}(?=s(?![a-z]))|[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_TOKEN: Final = pattern(r"""[^\s"'`()\[\]{}<>,;|=]+""")
_RUN: Final = pattern(r"[A-Za-z0-9]+|[^\x00-\x7f]")
_PART: Final = pattern(r"\d+|[A-Za-z]+")
_HEXADECIMAL: Final = pattern(r"(?<![0-9A-Za-z])0x[0-9A-Fa-f]{1,16}(?![0-9A-Za-z])")
_PLACE: Final = pattern(
    r"""<dir>(?:/[^\s"'`()<>,;|=:]*)?"""
    r"|(?<![\w.+/-])[\w.+-]++(?:(?<=\.gguf)|(?<=\.gguf\.))"
)
_FILE: Final = pattern(
    r"(?:llama-[a-z]+(?:-[a-z]+)?|(?:ggml-)?rpc-server|lib(?:ggml|llama|mtmd|c|cuda|vulkan)[\w.+-]{0,30}"
    r"|[\w-]{1,40}\.(?:c|cc|cpp|cuh?|hpp|h|mm?|metal|comp))\Z"
)
_THREADS: Final = pattern(
    r"https://github\.com/ggml-org/llama\.cpp/(?:pull|issues|discussions)/\d{1,6}(?:#\w{1,60}-?\d{0,20})?\Z"
)
_SEVERAL: Final = pattern(rf"{ELIDED}(?:[\s,;|:.]*{ELIDED})+")
_QUOTED: Final = pattern(r"""(?<![\w'])'[^'\n]*'(?![\w'])|(?<![\w"])"[^"\n]*"(?!\w)""")
_SIGNS: Final = frozenset("Ċ…×·–—→←≤≥−±µ°✓✕“”„’⚠")
_LONGEST: Final = 200
_FIGURES: Final = 20
_MIXED: Final = 3
"""Runs of letters and digits in one word; what has more is a key or a hash, not a name."""


def pieces(text: str) -> list[str]:
    """The words of a text in lower case; ``cudaMalloc`` and ``kv_cache`` are two each."""
    return [piece.lower() for piece in _PIECE.findall(text)]


@cache
def _words() -> tuple[frozenset[str], frozenset[str]]:
    """The list that ``scripts/vocabulary.py`` writes: words of messages, all other words."""
    text = resources.files(__package__).joinpath("vocabulary.txt").read_text("utf-8")
    messages, _, others = text.partition("\n\n")
    return frozenset(messages.split()), frozenset(others.split())


@cache
def package_words() -> frozenset[str]:
    """Every word that the package itself is written with."""
    return frozenset().union(*_words())


def message_words() -> frozenset[str]:
    """The words of llama.cpp's messages: a user of such a name is not looked for in a log."""
    return _words()[0]


class Vocabulary:
    """The package's words and more that are known in one document (names of devices)."""

    def __init__(self, more: Collection[str] = ()) -> None:
        self._words = package_words() | {piece for text in more for piece in pieces(text)}
        self._names = frozenset(more)

    def plain(self, text: str, *, kept: Callable[[str], bool] | None = None) -> str:
        """The text with ``…`` in place of what is not known; takes time linear in its length.

        Args:
            text: Any text, without secrets and paths.
            kept: What else may stay, asked of each word that is not known.
        """

        def one(found: re.Match[str]) -> str:
            token = found[0]
            return token if self.knows(token) or (kept and kept(token)) else ELIDED

        def quoted(found: re.Match[str]) -> str:
            inner = _TOKEN.sub(one, found[0][1:-1])
            # A name or a sentence with one private word is private.
            return f"{found[0][0]}{ELIDED if ELIDED in inner else inner}{found[0][-1]}"

        text = _QUOTED.sub(quoted, _PLACE.sub(self._place, text))
        return _SEVERAL.sub(ELIDED, _TOKEN.sub(one, text))

    def _place(self, found: re.Match[str]) -> str:
        """A file: of the program its name, else what kind it is."""
        if found[0].rstrip(".").endswith(".gguf"):
            return "MODEL.gguf" + "." * found[0].endswith(".")
        name = found[0].rpartition("/")[2]
        return found[0] if _FILE.match(name) and self.knows(name) else "PATH"

    def knows(self, token: str) -> bool:
        """Whether every part of a word is known: a word of the vocabulary, a figure, a sign."""
        if token in self._names or _THREADS.match(token):
            return True
        if len(token) > _LONGEST:
            return False
        token = _HEXADECIMAL.sub("", token)
        mixed = 0
        for run in _RUN.findall(token):
            parts = _PART.findall(run)
            if not parts:
                if run not in _SIGNS:
                    return False
                continue
            mixed += len(parts) > 1
            if len(parts) > 3 or mixed > _MIXED or not all(map(self._part, parts)):
                return False
        return True

    def _part(self, part: str) -> bool:
        if part.isdigit():
            return len(part) <= _FIGURES
        return all(len(piece) == 1 or piece in self._words for piece in pieces(part))
