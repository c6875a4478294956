"""``arriero explain``."""

from __future__ import annotations

import sys
from io import BufferedReader
from pathlib import Path
from typing import cast

import click

from arriero.base.errors import NotFoundError
from arriero.cli._group import Command
from arriero.cli._session import Session


@click.command(cls=Command, short_help="Name the first failure in a log, not the last error.")
@click.argument("logs", nargs=-1, required=True, metavar="LOG...")
@click.pass_obj
def explain(session: Session, logs: tuple[str, ...]) -> int:
    """Name the failure in the log of any version of llama-server.

    LOG is a file, or - for standard input.
    """
    from arriero.jobs import explain as job
    from arriero.record import Explanations

    found = tuple(
        job.explain_stream(_standard_input(session), "-") if log == "-" else job.explain(Path(log))
        for log in logs
    )
    complete = all(explanation.complete for explanation in found)
    if not complete:
        session.leave_echo()
    document = found[0] if len(found) == 1 else Explanations(explanations=found)
    session.show(document)
    if not complete:
        return session.stopped("interrupted: this is what the log said until then")
    parts = [part for whole in found for part in (whole.children or (whole,))]
    return 1 if any(part.failure is not None and part.failure.fatal for part in parts) else 0


def _standard_input(session: Session) -> BufferedReader:
    if sys.stdin is None:
        raise NotFoundError("standard input is closed", hint="arriero explain FILE", id="no-log")
    if sys.stdin.isatty():
        session.note("reading the log from this terminal; end it with Ctrl-D")
    return cast("BufferedReader", sys.stdin.buffer)
