"""Write a repaired command for a shell, changing only what the repair touches.

The text of a script is shell text and is kept. Other files have a language of their own, in which a
backtick or ``$(…)`` is an ordinary word: their words are quoted so that a shell passes them on and
runs nothing. A variable that the file names stays a variable.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from arriero.base.paste import is_hidden, quote, referring
from arriero.base.secret import NOT_SECRET
from arriero.command.command import Command
from arriero.command.inputs.model import Dialect, Spelling, Written, is_open
from arriero.command.secret import MASK, is_secret_variable, mask_word
from arriero.command.shell import shell_words

_ASSIGNED: Final = re.compile(r"(?:\A-e)?([A-Za-z_]\w*)=")
_ALONE: Final = re.compile(r"\$(?:[A-Za-z_]\w*|\{[A-Za-z_]\w*\})\Z", re.ASCII)
_BARE: Final = re.compile(r"\$[A-Za-z_]")
_DEFAULT: Final = re.compile(r"\$\{([A-Za-z_]\w*):?[-=+]([^}]*)\}")
_EXPANSION: Final = re.compile(
    r"""(?:[A-Za-z_]\w*=)?"?\$(?:[A-Za-z_]\w*|\{[\w.-]+(?:\[@\])?\})"?"""
)
_CLOSED: Final = re.compile(r"'[^']*'|\\[\s\S]")
_ESCAPED: Final = re.compile(r"""'[^'\\]*\\[^']*'|"[^"\\]*\\|\A=""")
_LIVE: Final = re.compile(r"'[^']*'|\\[\s\S]|(\$\(|`)")


def respelled(
    command: Command, written: Written | None, scrub: Callable[[str], str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The words of a command for a shell, without secrets.

    Text of a script that makes no word of the command (``"$@"``, a redirection, what starts the
    server) stays where it is. Each secret is replaced by a variable; the shell refuses to run the
    line until it is set.

    Args:
        command: The command made from the words of ``written``, possibly changed.
        written: Where the words come from; if it has no line of words, they are quoted for a shell.
        scrub: Removes secrets from a text of the file.

    Returns:
        The words, and notes on spellings that could not be kept.
    """
    asked: list[str] = []
    quoted = _without_secrets(command, asked)
    if written is None:
        return tuple(quoted), _notes((), asked)
    if why := _not_kept(command, written):
        return tuple(quoted), _notes((why,), asked)
    again = _Again(
        frozenset(written.places), lambda text: scrub(_masked(text, command.secrets())),
        written.dialect, dict(zip(written.places, written.words, strict=True)), asked,
    )  # fmt: skip
    first = _placed(command, written, quoted, again)
    words = _line(written, first, again)
    if written.dialect is not Dialect.SHELL:
        again.notes.append(f"quoted for a shell: {written.path} has its own way of quoting")
    return tuple(words), _notes((*written.unkept, *again.notes), asked, " ".join(words))


def _not_kept(command: Command, written: Written) -> str:
    """Why the text of the file cannot be printed, so that its words are quoted; empty if it can."""
    beyond = any(at is not None and at >= len(written.places) for at in command.origins)
    if not written.source or beyond:
        return f"{written.path} has no command line of its own: this one is for a shell"
    if any(is_hidden(c) and c != "\n" for one in written.source for c in one.text):
        return f"{written.path} contains control characters: its words are quoted anew"
    return ""


def _placed(command: Command, written: Written, quoted: list[str], again: _Again) -> list[str]:
    """Tell ``again`` which words are at which place; the new words before all of them."""
    safe = command.safe_argv()
    first: list[str] = []
    new = first
    for at, origin in enumerate(command.origins):
        if origin is None:
            new.append(quoted[at])
            continue
        place = written.places[origin]
        again.kept[place] = quoted[at]
        if written.contained and origin == written.program and written.dialect is not Dialect.SHELL:
            again.kept[place] = quote(_text_at(written.source, place) or quoted[at])  # the image
        if safe[at] != command.words[at]:
            again.secret.add(place)
        new = again.after.setdefault(place, [])
    if written.contained:
        return [part for word in first for part in ("-e", word)]
    return ["env", *first] if first and written.places[0] > 0 else first


def _line(written: Written, first: list[str], again: _Again) -> list[str]:
    """The words to print: each text of the file in turn, the new ones where they belong."""
    words: list[str] = []
    at = 0
    for spelling in written.source:
        if at <= written.places[0] < at + spelling.count:
            words += first
        words += again.words(spelling, at)
        at += spelling.count
    return words


def _text_at(source: tuple[Spelling, ...], place: int) -> str | None:
    """The file's text for one word; None if several words are written together."""
    at = 0
    for spelling in source:
        if at == place and spelling.count == 1:
            return spelling.text
        at += spelling.count
    return None


def _notes(notes: tuple[str, ...], asked: list[str], line: str = "") -> tuple[str, ...]:
    needed = [name for name in dict.fromkeys(asked) if not line or f"${{{name}:?}}" in line]
    told = (f"a secret is not shown: set {name} to it before you run this" for name in needed)
    return (*dict.fromkeys(notes), *told)


def _without_secrets(command: Command, asked: list[str]) -> list[str]:
    """The words for a shell, with each secret replaced by a variable that must be set."""
    safe = command.safe_argv()
    shown = shell_words(safe, command.prefix.assigned)
    for at, (word, real) in enumerate(zip(safe, command.words, strict=True)):
        if word != real:
            before = command.words[at - 1] if at else ""
            shown[at] = _referred(word, _variable_of(command, before, word), asked)
    return shown


def _variable_of(command: Command, before: str, word: str) -> str:
    """The variable that can hold the secret in a word: the flag's own, or the one assigned."""
    if assigned := _ASSIGNED.match(word):
        return assigned[1]
    if word.rpartition("=")[2] != MASK:
        return "SECRET"  # the secret is only a part of the word
    flag = command.flags.get(word.partition("=")[0] if word.startswith("-") else before)
    return (flag and flag.env) or "SECRET"


def _referred(word: str, variable: str, asked: list[str]) -> str:
    asked.append(variable)
    assigned = None if word.startswith("-") else _ASSIGNED.match(word)
    start = assigned[0] if assigned else ""
    parts = word[len(start) :].split(MASK)
    return start + f'"${{{variable}:?}}"'.join(quote(part) if part else "" for part in parts)


@dataclass
class _Again:
    placed: frozenset[int]
    """Places of the words that the command had before any edit."""
    scrub: Callable[[str], str]
    dialect: Dialect
    before: dict[int, str]
    """Place → the word as it was."""
    asked: list[str]
    """Variables that stand for secrets."""
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
        between = any(self.after.get(place) for place in inside[:-1])
        if not gone and not hides and not between and (text := self._text(spelling, at)):
            return [text, *behind]
        if not spelling.parts:
            text = self._default(spelling.text) if hides and len(inside) == 1 else ""
            kept = [text] if text else [self.kept[one] for one in inside if one in self.kept]
            return [*kept, *behind]
        if self.dialect is Dialect.SHELL and len(gone) < spelling.count > 1:
            text = self.scrub(spelling.text)
            self.notes.append(f"{text} is written out because some of its words change")
        words: list[str] = []
        for part in spelling.parts:
            words += self.words(part, at)
            at += part.count
        return words

    def _text(self, spelling: Spelling, at: int) -> str:
        """The text itself if a shell may be given it; empty where its words are to be written."""
        text = spelling.text
        if self.dialect is Dialect.SHELL:
            if at in self.kept and _is_misread(text):
                return ""
            if any(live[1] for live in _LIVE.finditer(text)):
                self.notes.append(
                    f"{text} is the script's own text: a shell runs the command in it"
                )
            return self._scrubbed(text)
        if spelling.count > 1 and spelling.parts:
            return ""
        if at not in self.placed or not spelling.count:
            return text if _ALONE.match(text) else self._requoted(text)
        fills_in = self.dialect in (Dialect.COMPOSE, Dialect.SYSTEMD)
        macro = self.dialect is Dialect.SWAP and is_open(self.before[at]) and not _BARE.search(text)
        return (referring(text) or "") if fills_in or macro else ""

    def _default(self, text: str) -> str:
        """A variable with a default in a secret's place, without the default if that is one."""
        found = _DEFAULT.fullmatch(text.strip('"'))
        if found is None:
            return ""
        shown = referring(text)
        if shown and found[2].lower() in NOT_SECRET:
            return shown
        self.asked.append(found[1])
        return f'"${{{found[1]}:?}}"'

    def _scrubbed(self, text: str) -> str:
        return text if self.scrub(text) == text else self._requoted(text)

    def _requoted(self, text: str) -> str:
        """Words of no place in the command, such as what starts it, for a shell."""
        try:
            words = shlex.split(text)
        except ValueError:
            words = [text]
        shown = []
        for word in words:
            safe = self.scrub(word)
            assigned = _ASSIGNED.search(safe)
            name = assigned[1] if assigned else "SECRET"
            shown.append(quote(word) if safe == word else _hidden(safe, name, self.asked))
        return " ".join(shown)


def _is_misread(text: str) -> bool:
    """Whether a word that fills in nothing is one that not every shell reads alike, or not at all.

    fish knows escapes in single quotes and fewer of them in double quotes.
    """
    hidden = any(map(is_hidden, text.replace("\\\n", "")))
    fills_in = re.search(r"[$`*?\[~{]", _CLOSED.sub("", text)) is not None
    return hidden or (not fills_in and _ESCAPED.search(text) is not None)


def _hidden(safe: str, variable: str, asked: list[str]) -> str:
    head, equals, rest = safe.rpartition(f"{variable}=")
    if not equals:
        return _referred(safe, variable, asked)
    return quote(head) * bool(head) + _referred(equals + rest, variable, asked)


def _masked(text: str, secrets: frozenset[str]) -> str:
    for assigned in _ASSIGNED.finditer(text):
        if is_secret_variable(assigned[1]):
            return f"{text[: assigned.end()]}{MASK}"
    return mask_word(text, secrets)
