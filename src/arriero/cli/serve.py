"""``arriero serve``."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from arriero.cli._group import Command
from arriero.cli._session import Session
from arriero.serve.settings import TABLE, Setting

if TYPE_CHECKING:
    from arriero.record import Event

_F = TypeVar("_F", bound=Callable[..., Any])


def _option(setting: Setting) -> Callable[[_F], _F]:
    """One setting as an option: its text is read with those of the file and the environment."""
    default = f"  [default: {setting.default}]" if setting.default and not setting.switch else ""
    if setting.switch:
        return click.option(setting.option, setting.attribute, is_flag=True, help=setting.help)
    return click.option(
        setting.option,
        setting.attribute,
        metavar=setting.metavar,
        multiple=setting.many,
        hidden=setting.rare,
        help=setting.help + default,
    )


def settings_options(function: _F) -> _F:
    """All settings as options of a command."""
    for setting in reversed(TABLE):
        function = _option(setting)(function)
    return function


def given_options(given: Mapping[str, Any]) -> dict[str, str | tuple[str, ...]]:
    """What was given of the settings, by name, as it was typed."""
    options: dict[str, str | tuple[str, ...]] = {}
    for setting in TABLE:
        value = given[setting.attribute]
        if setting.switch and value:
            options[setting.name] = "on"
        elif not setting.switch and value not in (None, ()):
            options[setting.name] = value
    return options


@click.command(
    cls=Command,
    takes_command=True,
    short_help="Run a llama-server that stays up.",
    options_metavar="[OPTIONS] (MODEL ... | -- llama-server ...)",
)
@click.option("--force", is_flag=True, help="Start even what does not fit.")
@settings_options
@click.pass_obj
def serve(session: Session, /, force: bool, **given: Any) -> int:
    """Run a llama-server that stays up: put this before the command you have.

    \b
        arriero serve -- llama-server -m model.gguf -c 8192 --port 8080
        arriero serve model.gguf

    It listens where the command said and runs the engine behind that. When the engine dies, hangs
    or answers errors, requests wait, it is started again, and answers go on. A MODEL alone gets
    settings that fit this machine. GET /arriero/ shows how it is.

    Options can also be set in the environment (ARRIERO_SERVE_HOLD for --hold) or in the file that
    --config names. `arriero schema settings` lists all of them, limits on requests included. With
    --json, events are printed, one a line.
    """
    from arriero.jobs import serve as job
    from arriero.serve.settings_sources import Sources

    def tell(event: Event) -> None:
        if session.argv.json:
            session.write(event.line())

    return job.serve(
        session.argv.words or [],
        job.ServeOptions(
            sources=Sources(given_options(given), dict(os.environ), Path.cwd()),
            force=force,
            bare=session.argv.bare,
        ),
        tell=tell,
        note=session.note,
        store=session.store,
        progress=session.progress(),
    )
