"""A repaired command as the user spells it: only what the repair touches is written anew."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from arriero.command.command import Command
from arriero.command.secret import MASK, is_secret_variable, mask_word
from arriero.command.shell import shell_words

if TYPE_CHECKING:
    from arriero.command.inputs.model import Spelling, Written

_ASSIGNED: Final = re.compile(r"([A-Za-z_]\w*)=")
_EXPANSION: Final = re.compile(
    r"""(?:[A-Za-z_]\w*=)?"?\$(?:[A-Za-z_]\w*|\{[\w.-]+(?:\[@\])?\})"?"""
)


def respelled(
    command: Command, written: Written | None, scrub: Callable[[str], str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The words of a command for a shell, or for the file it comes from, without secrets.

    What stands in the file and makes no word of the command (``"$@"``, a redirection, what starts
    the server) stays where it is.

    Args:
        command: As it was made of the words of ``written``, or with changes.
        written: Where they come from; without a line of its own it is quoted for a shell.
        scrub: Takes secrets out of a text of the file.

    Returns:
        The words, and notes on spellings that could not be kept.
    """
    safe = command.safe_argv()
    quoted = shell_words(safe, command.prefix.assigned)
    if written is None:
        return tuple(quoted), ()
    if not written.source:
        return tuple(quoted), (f"{written.path} has no line of words: this one is for a shell",)
    places = written.places
    again = _Again(frozenset(places), lambda text: scrub(_masked(text, command.secrets())))
    first: list[str] = []
    new = first
    for at, origin in enumerate(command.origins):
        if origin is None:
            new.append(quoted[at])
            continue
        place = places[origin]
        again.kept[place] = quoted[at]
        if safe[at] != command.words[at]:
            again.secret.add(place)
        new = again.after.setdefault(place, [])
    if written.contained:
        first = [part for word in first for part in ("-e", word)]
    elif first and places[0] > 0:
        first.insert(0, "env")
    words: list[str] = []
    at = 0
    for spelling in written.source:
        if at <= places[0] < at + spelling.count:
            words += first
        words += again.words(spelling, at)
        at += spelling.count
    return tuple(words), (*written.unkept, *again.notes)


@dataclass
class _Again:
    placed: frozenset[int]
    """Places of the words that the command had before any edit."""
    scrub: Callable[[str], str]
    kept: dict[int, str] = field(default_factory=dict)
    """Place → the word for a shell, without secrets, of the words that are still there."""
    secret: set[int] = field(default_factory=set)
    after: dict[int, list[str]] = field(default_factory=dict)
    """Place → new words behind it."""
    notes: list[str] = field(default_factory=list)

    def words(self, spelling: Spelling, at: int) -> list[str]:
        """What is to be printed for a text whose first word has this place."""
        inside = range(at, at + spelling.count)
        gone = [place for place in inside if place in self.placed and place not in self.kept]
        behind = self.after.get(inside[-1], []) if inside else []
        hides = not self.secret.isdisjoint(inside) and not _EXPANSION.fullmatch(spelling.text)
        if not gone and not hides and not any(self.after.get(place) for place in inside[:-1]):
            return [self.scrub(spelling.text), *behind]
        if not spelling.parts:
            return [
                *(self.kept[place] for place in inside if place in self.kept),
                *behind,
            ]
        if len(gone) < spelling.count > 1:
            text = self.scrub(spelling.text)
            self.notes.append(f"{text} is written out: some of the words that it holds change")
        words: list[str] = []
        for part in spelling.parts:
            words += self.words(part, at)
            at += part.count
        return words


def _masked(text: str, secrets: frozenset[str]) -> str:
    for assigned in _ASSIGNED.finditer(text):
        if is_secret_variable(assigned[1]):
            return f"{text[: assigned.end()]}{MASK}"
    return mask_word(text, secrets)
