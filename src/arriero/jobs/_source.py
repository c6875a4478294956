"""The words of one command to be checked, and where each stands."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from arriero.command import Command, builtin_flags, split_text
from arriero.command.place import Around

if TYPE_CHECKING:
    from arriero.command.inputs.model import Written


@dataclass(frozen=True)
class Source:
    """The words of one command and where each stands."""

    words: Sequence[str]
    environ: Mapping[str, str]
    written: Written | None = None
    notes: tuple[str, ...] = ()
    may_run: bool = True
    """Whether the program that the command names may be started: never one that a file names, or
    that something else would start."""

    def engine_environ(self) -> dict[str, str]:
        """For the engine that is asked: of variables from elsewhere only which devices it sees."""
        from arriero.machine import visibility

        own = self.environ if self.may_run else visibility(self.environ)
        return {**os.environ, **own}

    @property
    def around(self) -> Around:
        """What a file or a wrapper tells about it."""
        return self.written.around if self.written is not None else Around()

    def locate(self, command: Command, flag: str | int | None) -> str | None:
        """``file:line`` of the last use of a flag, of a line, or of the command."""
        if self.written is None or not self.written.path:
            return None
        line = self.written.line
        if isinstance(flag, int):
            return f"{self.written.path}:{flag}"
        wanted = command.flags.get(flag) if flag else None
        for item in command.items:
            if item.name == flag or (wanted is not None and item.flag is wanted):
                line = self.written.lines[item.at]
        return f"{self.written.path}:{line}"


def behind(words: Sequence[str]) -> Source | None:
    """The server's command behind one that cannot be run here, with the variables it is given."""
    from arriero.command.inputs import command_behind

    words = split_text(words[0]) if len(words) == 1 else words
    found = command_behind(words, builtin_flags())
    if found is None:
        return None
    note = "only the llama-server command is checked, without what starts it"
    notes = (note, *found.notes)
    return Source(found.words, found.env, found, notes, may_run=False)
