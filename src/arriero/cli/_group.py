"""The program and its commands: each in the module of its name, loaded when it is used."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import Any, Final, cast

import click

from arriero import __version__

COMMANDS: Final = (
    *("check", "diagnose", "explain", "export", "gotchas", "history", "incidents"),
    *("plan", "report", "schema", "serve", "skeleton", "status", "verify"),
)


class _Formatter(click.HelpFormatter):
    """Help that also fits a narrow terminal; click's own stops at 50 columns."""

    def __init__(self, width: int | None = None, max_width: int | None = None) -> None:
        import shutil  # late: only help is laid out here

        columns = min(shutil.get_terminal_size().columns, max_width or 80)
        super().__init__(width=width or max(columns - 2, 30))

    def write_dl(
        self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        super().write_dl(list(rows), min(col_max, self.width // 3 + 4), col_spacing)


class _Context(click.Context):
    formatter_class = _Formatter


class Command(click.Command):
    """One command of ``arriero``: it answers in JSON where it is asked to."""

    context_class = _Context

    def __init__(self, *args: Any, takes_command: bool = False, **more: Any) -> None:
        super().__init__(*args, **more)
        self.takes_command = takes_command
        """A llama-server command may follow, after ``--``."""
        self.params.append(
            click.Option(
                ["--json"],
                is_flag=True,
                expose_value=False,
                help="Print one JSON document on standard output, and nothing else there.",
            )
        )

    def takes_value(self) -> dict[str, bool]:
        """Each of the command's own options, by every name: whether a value follows it."""
        options = [p for p in self.params if isinstance(p, click.Option)]
        return {
            **{name: not option.is_flag for option in options for name in option.opts},
            "-h": False,
            "--help": False,
        }


class _Modules(Mapping[str, Command]):
    """The commands by name; looking one up loads its module."""

    def __getitem__(self, name: str) -> Command:
        if name not in COMMANDS:
            raise KeyError(name)
        command: Command = getattr(import_module(f"arriero.cli.{name}"), name)
        return command

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class _Group(click.Group):
    context_class = _Context

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.commands = cast("MutableMapping[str, click.Command]", _Modules())


@click.group(
    cls=_Group,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, "--version", message="arriero %(version)s")
def cli() -> None:
    """Make llama.cpp's llama-server fit in memory and stay up."""
