"""The words of a llama-server command: program, wrapper, environment, and what may be printed."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field

from arriero.command.flags import Flag, FlagTable, normalise
from arriero.command.prefix import Prefix
from arriero.command.secret import MASK, is_secret_variable, mask_word, secrets_in
from arriero.command.shell import join_words


@dataclass(frozen=True)
class Item:
    """One flag as typed (or a word that is not a flag), with the words that it takes.

    ``at`` is its position in ``Command.words``; ``flag`` is None if the engine does not list it.
    """

    at: int
    name: str
    values: tuple[str, ...]
    flag: Flag | None

    @property
    def end(self) -> int:
        """The position behind its last word."""
        return self.at + 1 + len(self.values)

    @property
    def complete(self) -> bool:
        """Whether it is a known flag with all its words."""
        return self.flag is not None and len(self.values) == self.flag.arity

    @property
    def secret(self) -> bool:
        """Whether its words are keys, tokens or passwords."""
        return is_secret(self.flag) if self.flag else is_secret_variable(self.name)

    @property
    def value(self) -> str:
        """Its words joined by a space; ``on`` or ``off`` for a switch."""
        if self.flag is not None and self.flag.arity == 0:
            return "off" if normalise(self.name) in self.flag.negatives else "on"
        return " ".join(self.values)


@dataclass(frozen=True, repr=False)
class CommandLine:
    """The words as typed, split into flags, and the environment that they are started in."""

    words: tuple[str, ...]
    flags: FlagTable
    inherited: Mapping[str, str]
    """The environment of Arriero's own process."""
    prefix: Prefix
    items: tuple[Item, ...]
    origins: tuple[int | None, ...] = field(compare=False)
    """For each word its position in the command before any change; None for a new word."""

    def __repr__(self) -> str:
        # A traceback or a failing test must not print a secret either.
        return f"{type(self).__name__}({self.safe_text()!r})"

    @property
    def argv(self) -> tuple[str, ...]:
        """Exactly what was typed."""
        return self.words

    @property
    def program(self) -> str:
        """The engine as typed: a path, or a name to be found on PATH."""
        return self.words[self.prefix.length]

    @property
    def wrapper(self) -> tuple[str, ...]:
        """The words before the program: ``env``, ``numactl``, ``taskset``, ..."""
        return self.words[self.prefix.assignments : self.prefix.length]

    @property
    def exec_argv(self) -> tuple[str, ...]:
        """The words to execute: all but the leading assignments, which go into the environment."""
        return self.words[self.prefix.assignments :]

    @property
    def exec_environ(self) -> dict[str, str]:
        """The environment to execute ``exec_argv`` in: inherited and the leading assignments."""
        leading = (word.partition("=") for word in self.words[: self.prefix.assignments])
        return {**self.inherited, **{name: value for name, _, value in leading}}

    @property
    def environ(self) -> Mapping[str, str]:
        """The environment that llama-server itself will see."""
        return self.prefix.environ

    @property
    def env(self) -> dict[str, str]:
        """The variables that the command itself sets."""
        pairs = (self.words[at].partition("=") for at in self.prefix.assigned)
        return {name: value for name, _, value in pairs}

    def text(self) -> str:
        """The command as one line for a POSIX shell, secrets included."""
        return join_words(self.words, self.prefix.assigned)

    def secrets(self) -> frozenset[str]:
        """Values of flags and variables that must never be written: keys, tokens, passwords.

        Keys inside ``--api-key-file`` are not included: ``Serving`` reads them.
        """
        return self._secrets

    @functools.cached_property
    def _secrets(self) -> frozenset[str]:
        named = [item.value for item in self.items if item.secret]
        return secrets_in(self.words, named, self.environ)

    def safe_argv(self) -> tuple[str, ...]:
        """The words as typed with every secret replaced by ``***``."""
        words = list(self.words)
        for item in self.items:
            if item.secret:
                words[item.at + 1 : item.end] = [MASK] * len(item.values)
        for at in self.prefix.assigned:
            name, _, _ = words[at].partition("=")
            if is_secret_variable(name):
                words[at] = f"{name}={MASK}"
        return tuple(mask_word(word, self.secrets()) for word in words)

    def safe_text(self) -> str:
        """``safe_argv`` as one line for a POSIX shell."""
        return join_words(self.safe_argv(), self.prefix.assigned)


def is_secret(flag: Flag) -> bool:
    return any(is_secret_variable(name) for name in (flag.canonical, flag.env or ""))
