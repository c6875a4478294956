"""A command as a file has it, and the limits that every form keeps."""

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
"""Nesting of lists, macros and variables."""
MOST_WORDS: Final = 4096
MOST_COMMANDS: Final = 256
LONGEST_WORD: Final = 1 << 16

_IMAGE: Final = re.compile(r"llama[-_.]?cpp|llama-server", re.IGNORECASE)
_OPEN: Final = re.compile(r"\$[A-Za-z_{(@*#0-9]|`|\{\{")


@dataclass(frozen=True)
class Spelling:
    """Text of a file that makes words of a command, with its quotes and variables.

    ``count`` is the number of words, ``at`` where the text begins in what it was read from.
    ``parts`` spell the same words without the variable or macro that stands for them all. Text that
    makes no word is a redirection, or a variable that is empty.
    """

    text: str
    count: int = 1
    at: int = 0
    parts: tuple[Spelling, ...] = ()


class Dialect(Enum):
    """What the text of a command means where it stands, and so what of it a shell may be given."""

    SHELL = "a script's own text"
    COMPOSE = "a compose file's: $NAME and ${NAME} are filled in, all else is as it is"
    SYSTEMD = "a unit's: the same"
    SWAP = "llama-swap's: ${NAME} is a macro, all else is as it is"
    WORDS = "words as they are"


@dataclass(frozen=True)
class Written:
    """One command of a file: its words, the variables that the file sets for it, where it stands.

    ``lines`` has the line of each word, from 1. ``program`` is the position of the program, behind
    assignments and wrappers. ``source`` is the command as it is written, with what starts it;
    ``places`` has for each word its number among all words of ``source``. Both are empty for a form
    that writes no line of words.
    """

    words: tuple[str, ...]
    path: str
    line: int
    lines: tuple[int, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    name: str = ""
    """What the file calls it: a service, a model."""
    notes: tuple[str, ...] = ()
    program: int = 0
    source: tuple[Spelling, ...] = ()
    places: tuple[int, ...] = ()
    unkept: tuple[str, ...] = ()
    """Where ``source`` is not what the file has, one line each."""
    contained: bool = False
    """Whether a container's image stands for the program."""
    dialect: Dialect = Dialect.WORDS
    around: Around = field(default_factory=Around)

    def picked(self, at: Sequence[int], notes: Sequence[str]) -> Written:
        """The same with only the words at these positions."""
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
    """How many first words are not the server's, of what an image of llama.cpp is given.

    An image with all programs has one word that names the program (``tools.sh``); a light one
    starts ``llama-cli``. Null where no server is started.
    """
    tag = image.partition("@")[0].rpartition("/")[2].partition(":")[2]
    first = words[0] if words else ""
    if not is_image(image) or tag.startswith("light"):
        return None
    if tag.startswith("full"):
        return 1 if first in ("--server", "-s") else None
    return int(first == "--server")


def is_open(word: str) -> bool:
    """Whether something in the word is left for others to fill in."""
    return _OPEN.search(word) is not None


def no_command(path: str, script: str | None) -> UsageError:
    """That a file has no command of a server; ``script`` is what it starts, if that is known."""
    if script is None:
        return UsageError(
            f"no llama-server command in {path}",
            hint="a script, unit, container, compose, llama-swap or Kubernetes file, Dockerfile, "
            "models preset or JSON array",
            id="no-command",
        )
    beside = Path(path).with_name(PurePosixPath(script).name)
    there = str(beside) if limits.file_at(Path(), str(beside)) else script
    return UsageError(
        f"no llama-server command in {path}: it starts {quote(script)}",
        hint=f"check that file: arriero check {quote(there)}",
        id="no-command",
    )


class Room:
    """What may be filled in for the variables of one file."""

    def __init__(self, path: str) -> None:
        self.path, self.left = path, 4 * LARGEST

    def take(self, text: str) -> str:
        """The text itself.

        Raises:
            UsageError: There is no room left for it.
        """
        self.left -= len(text)
        if self.left < 0:
            raise too_large(self.path, "its variables fill in to more than any command holds")
        return text


def too_large(path: str, what: str) -> UsageError:
    return UsageError(f"{path}: {what}", hint="is it a file of commands?", id="input-too-large")
