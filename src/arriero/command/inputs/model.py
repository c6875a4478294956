"""A command as written in a file, and the limits of every form."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path, PurePosixPath
from typing import Final

from arriero.base import limits
from arriero.base.errors import UsageError
from arriero.base.paste import quote
from arriero.command.place import Around
from arriero.command.place import is_server as is_server

LARGEST: Final = 1 << 18
"""Bytes of a file that holds commands."""
DEEPEST: Final = 40
"""Greatest depth of nested lists, macros and variables."""
MOST_WORDS: Final = 4096
MOST_COMMANDS: Final = 256
LONGEST_WORD: Final = 1 << 16

_IMAGE: Final = re.compile(r"llama[-_.]?cpp|llama-server", re.IGNORECASE)
_OPEN: Final = re.compile(r"\$[A-Za-z_{(@*#0-9]|`|\{\{")


@dataclass(frozen=True)
class Spelling:
    """Text of a file that makes words of a command, with its quotes and variables.

    ``count`` is the number of words, ``at`` the position of the text in its source. ``parts`` are
    the same words without the variable or macro that stands for all of them. Text that makes no
    word is a redirection, or an empty variable.
    """

    text: str
    count: int = 1
    at: int = 0
    parts: tuple[Spelling, ...] = ()


class Dialect(Enum):
    """The language in which a command is written; it decides which text a shell may get."""

    SHELL = "shell text of a script"
    COMPOSE = "a compose file: $NAME and ${NAME} are replaced, everything else stays"
    SYSTEMD = "a unit: the same"
    SWAP = "llama-swap: ${NAME} is a macro, everything else stays"
    WORDS = "words as they are"


@dataclass(frozen=True)
class Written:
    """One command of a file: its words, the variables that the file sets for it, its place.

    ``lines`` has the line of each word, from 1. ``program`` is the position of the program, behind
    assignments and wrappers. ``source`` is the command as written, with what starts it; ``places``
    has the number of each word among all words of ``source``. Both are empty for a form without a
    line of words.
    """

    words: tuple[str, ...]
    path: str
    line: int
    lines: tuple[int, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    name: str = ""
    """Its name in the file: a service, a model."""
    notes: tuple[str, ...] = ()
    program: int = 0
    source: tuple[Spelling, ...] = ()
    places: tuple[int, ...] = ()
    unkept: tuple[str, ...] = ()
    """Where ``source`` differs from the file, one line each."""
    contained: bool = False
    """Whether a container's image stands in place of the program."""
    dialect: Dialect = Dialect.WORDS
    around: Around = field(default_factory=Around)

    def picked(self, at: Sequence[int], notes: Sequence[str]) -> Written:
        """The same command with only the words at these positions."""
        return replace(
            self,
            words=tuple(self.words[i] for i in at),
            lines=tuple(self.lines[i] for i in at),
            places=tuple(self.places[i] for i in at) if self.places else (),
            notes=tuple(dict.fromkeys(notes)),
        )


def is_image(word: str) -> bool:
    """Whether a word names a container image of llama.cpp's server."""
    return not word.startswith("-") and _IMAGE.search(word) is not None


def given_to_server(image: str, words: Sequence[str]) -> int | None:
    """How many of the first arguments of a llama.cpp image are not for the server.

    An image with all programs needs one word that names the program (``tools.sh``); a light one
    starts ``llama-cli``. None if no server is started.
    """
    tag = image.partition("@")[0].rpartition("/")[2].partition(":")[2]
    first = words[0] if words else ""
    if not is_image(image) or tag.startswith("light"):
        return None
    if tag.startswith("full"):
        return 1 if first in ("--server", "-s") else None
    return int(first == "--server")


def is_open(word: str) -> bool:
    """Whether the word contains a placeholder that another program replaces."""
    return _OPEN.search(word) is not None


def no_command(path: str, script: str | None) -> UsageError:
    """The error for a file without a server's command; ``script`` is what it starts, if known."""
    if script is None:
        return UsageError(
            f"{path} contains no llama-server command",
            hint="give a script, unit, container, compose, llama-swap or Kubernetes file, "
            "Dockerfile, models preset or JSON array",
            id="no-command",
        )
    beside = Path(path).with_name(PurePosixPath(script).name)
    there = str(beside) if limits.file_at(Path(), str(beside)) else script
    return UsageError(
        f"{path} contains no llama-server command: it starts {quote(script)}",
        hint=f"check that file: arriero check {quote(there)}",
        id="no-command",
    )


class Room:
    """How much text the variables of one file may still expand to."""

    def __init__(self, path: str) -> None:
        self.path, self.left = path, 4 * LARGEST

    def take(self, text: str) -> str:
        """Return the text and count its length.

        Raises:
            UsageError: There is no room left for it.
        """
        self.left -= len(text)
        if self.left < 0:
            raise too_large(self.path, "its variables expand to more text than any command has")
        return text


def too_large(path: str, what: str) -> UsageError:
    return UsageError(f"{path}: {what}", hint="give a file of commands", id="input-too-large")
