"""What of a log may be told: lines that a row fits, with their figures and known words.

A log holds prompts, names and paths in ways that nobody has listed. So nothing stays because it
looks harmless: a line stays because ``messages.txt`` or ``lines_told.txt`` has a row for it, and a
word because llama.cpp, a driver or Arriero is known to write it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib import resources
from typing import Final

from arriero.base.late import pattern
from arriero.base.prompts import echo_start, without_prompts
from arriero.base.vocabulary import ELIDED, Vocabulary, package_words, pieces
from arriero.command.telling import told_command
from arriero.logs.grammar import SIGNS, events
from arriero.logs.lines import clean, plain

_OWN_PREFIX: Final = pattern(
    r"(?:\[\s{0,4}\d{4,5}\] )?(?:\d{1,9}\.\d\d\.\d{3}\.\d{3} )?(?:[IWED] {1,4})?(?:- )?"
    r"(?:\d{1,3} {2,4})?\Z"
)
_FUNCTION: Final = pattern(r"(?:(?:srv|slot|que|res|cmn|spec|main)\s{1,12})?(\w{12}):")
_STARTED: Final = pattern(
    r"(?P<by>[+$#] |ExecStart=|exec )?(?:[\w<>./-]{1,200}/)?llama-server(?:\.exe)? -"
)
"""A command that a shell or a unit repeats."""
_COMMIT: Final = pattern(r"(?:commit |\()([0-9a-f]{7,40})(?![0-9A-Za-z])")
_HEADER_TEXT: Final = pattern(r"(\bgeneral\.[\w.]{1,60}\s{0,40}=\s{0,4})(?![\d.]+\Z)\S.*")
"""What a model says of itself: its name, its author, where it comes from."""
_NAMED: Final = pattern(
    r"(?:architecture: '|invalid argument: |unsupported op '?|op not supported )([\w-]{1,40})"
)
"""What a message is about: an architecture, an option, an operation that is not known."""
_TENSOR: Final = pattern(
    r"(?:[a-z]{1,8}\.)?(?:blk\.\d{1,4}\.)?\w{1,40}\.(?:weight|bias|scale)\.?\Z"
)
_SYMBOL: Final = pattern(
    r"(?:ggml_\w{1,80}|(?:cuda|hip|cu|vk|cublas|hsa|rocblas)[A-Z_]\w{1,80}"
    r"|lib[\w+-]{1,30}\.so(?:\.\d{1,4}){0,3}):?\Z"
)
_ECHO_TOLD: Final = pattern(r"[\d\s.,]*|true|false|'<[|\w]{1,40}>'[^'\"]*")
"""Figures, and tokens with a name of their own (``'<|im_end|>'``)."""


@cache
def _shown() -> re.Pattern[str]:
    """Rows of lines that tell a reader something, though no verdict hangs on them."""
    text = resources.files(__package__).joinpath("lines_told.txt").read_text("utf-8")
    rows = [row for row in text.splitlines() if row and not row.startswith("#")]
    return re.compile("|".join(f"(?:{row})" for row in rows))


def told(raw: str, vocabulary: Vocabulary) -> str | None:
    """One line as it may be told, or None where no row fits it."""
    line = clean(raw, 0)
    text = without_prompts(line.text)
    if not text:
        return None
    if started := _STARTED.match(text):
        by = started["by"] or ""
        command = _command(text[len(by) :], vocabulary)
        return None if command is None else by + command
    fits = events(text) or any(sign in text for sign in SIGNS.values()) or _shown().search(text)
    return _own_prefix(raw, line.text) + _words(text, vocabulary) if fits else None


def _command(text: str, vocabulary: Vocabulary) -> str | None:
    try:
        words = shlex.split(text)
    except ValueError:  # a quote that is not closed
        return None
    return shlex.join(told_command(words, vocabulary))


def told_lines(raws: Iterable[str], vocabulary: Vocabulary) -> tuple[str, ...]:
    """Lines of one log as they may be told; one line says how many were left out in its place."""
    return tuple(_told(list(raws), vocabulary))


def _told(raws: Sequence[str], vocabulary: Vocabulary) -> Iterator[str]:
    left_out = 0
    for raw in raws:
        if (count := _LEFT_OUT.match(raw)) is not None:  # what was told once may be told again
            left_out += int(count[1])
            continue
        shown = told(raw, vocabulary)
        if shown is None:
            left_out += 1
            continue
        if left_out:
            yield _said(left_out)
            left_out = 0
        yield shown
    if left_out:
        yield _said(left_out)


_LEFT_OUT: Final = pattern(rf"{ELIDED} (\d{{1,9}}) lines? not needed here\Z")


def _said(left_out: int) -> str:
    return f"{ELIDED} {left_out} line{'s' * (left_out > 1)} not needed here"


def _own_prefix(raw: str, text: str) -> str:
    """What the server itself puts in front: number of a router's child, its clock, the level."""
    shown = plain(raw)
    at = shown.find(text)
    if at > 0 and at < 9 and not shown[:at].strip():
        return shown[:at]
    found = _OWN_PREFIX.search(shown, max(0, at - 64), at) if at > 0 else None
    return found[0] if found else ""


def _words(text: str, vocabulary: Vocabulary) -> str:
    said = {found[1] for what in (_COMMIT, _NAMED) for found in what.finditer(text)}
    if (function := _FUNCTION.match(text)) and _is_cut_short(function[1], vocabulary):
        said.add(f"{function[1]}:")
    text = _HEADER_TEXT.sub(rf"\1{ELIDED}", text)
    # What a server repeats of clients and of files is theirs, whatever words it is made of.
    at = echo_start(text)
    if at >= 0 and _ECHO_TOLD.fullmatch(text, at) is None:
        text = text[:at] + ELIDED
    return vocabulary.plain(
        text, kept=lambda word: bool(word in said or _TENSOR.match(word) or _SYMBOL.match(word))
    )


def _is_cut_short(name: str, vocabulary: Vocabulary) -> bool:
    """Whether it is the name of a function in the twelve characters that newer builds give it."""
    *whole, last = pieces(name) or [""]
    return all(map(vocabulary.knows, whole)) and (
        len(last) > 2 and any(word.startswith(last) for word in package_words())
    )
