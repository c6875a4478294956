"""``arriero export``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from arriero.cli._group import Command
from arriero.cli._session import Session
from arriero.cli.serve import given_options, settings_options


@click.command(
    cls=Command,
    takes_command=True,
    short_help="Write a unit, compose file or the like that runs arriero serve.",
    options_metavar="[OPTIONS]",
)
@click.argument("target", type=click.Choice(["systemd", "compose", "llama-swap", "caddy"]))
@settings_options
@click.pass_obj
def export(session: Session, /, target: Any, **given: Any) -> int:
    """Write a file with which something else runs arriero serve, or stands before it.

    \b
        arriero export systemd -- llama-server -m model.gguf -c 8192

    TARGET is systemd (a unit), compose (a compose file that builds its image), llama-swap (one
    model of its configuration) or caddy (a site of a Caddyfile). The options are those of arriero
    serve, and go into the file. Keys do not: they stay in a file of their own.
    """
    from arriero.jobs import export as job
    from arriero.record import encode
    from arriero.serve.settings_sources import Sources

    sources = Sources(given_options(given), dict(os.environ), Path.cwd())
    document = job.export(target, session.argv.words or [], sources)
    if session.argv.json:
        session.write(encode(document))
        return 0
    session.write(document.text.encode("utf-8", "surrogateescape"))
    for note in document.notes:
        session.note(note)
    return 0
