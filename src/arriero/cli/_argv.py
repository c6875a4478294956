"""Whose argument is it: Arriero's own, or part of the llama-server command it is to look at?"""

from __future__ import annotations

from pathlib import PurePath
from typing import Final, NamedTuple

from arriero.cli._group import Command, cli

SEPARATOR: Final = "--"
_TAKE_OPTIONS: Final = frozenset({"plan", "serve"})
_SERVERS: Final = frozenset({"llama-server", "llama-server.exe", "llama-server-vulkan"})


class Argv(NamedTuple):
    """The arguments of ``arriero``, taken apart."""

    own: list[str]
    """Arriero's own."""
    words: list[str] | None = None
    """The command after ``--``; None where there is no ``--``."""
    bare: bool = False
    """The words are a model and options of llama-server, without ``--`` and the program."""

    @property
    def command(self) -> Command | None:
        """The command of Arriero that is asked for, if there is one of that name."""
        return command_of(self.own)

    @property
    def json(self) -> bool:
        return "--json" in self.own


def command_of(argv: list[str]) -> Command | None:
    """The command named by the first argument that is no option."""
    name = next((word for word in argv if not word.startswith("-")), "")
    found = cli.commands.get(name)
    return found if isinstance(found, Command) else None


def take_apart(argv: list[str]) -> Argv:
    """Arriero's own arguments apart from the command that some of its commands take."""
    command = command_of(argv)
    if command is None or not command.takes_command:
        return Argv(argv)
    if SEPARATOR in argv:
        at = argv.index(SEPARATOR)
        return Argv(argv[:at], argv[at + 1 :])
    if command.name not in _TAKE_OPTIONS:
        return Argv(argv)
    return _with_options(argv, command)


def _with_options(argv: list[str], command: Command) -> Argv:
    """``arriero plan MODEL [options]``: its own by their exact names, all others llama-server's."""
    from arriero.command import builtin_flags

    takes_value, flags = command.takes_value(), builtin_flags()
    at = argv.index(str(command.name))
    own, words = argv[: at + 1], list[str]()
    while (at := at + 1) < len(argv):
        name, equals, _ = argv[at].partition("=")
        if name in takes_value:
            end = at + 1 + (takes_value[name] and not equals)
            own += argv[at:end]
        else:
            flag = flags.get(argv[at])
            end = at + 1 + (flag.arity if flag else 0)
            words += argv[at:end]
        at = end - 1
    return Argv(own, words, bare=not (words and PurePath(words[0]).name in _SERVERS))
