"""``arriero history``."""

from __future__ import annotations

import click

from arriero.cli._group import Command
from arriero.cli._session import Session


@click.command(cls=Command, short_help="List the records of earlier runs, or show one.")
@click.argument("id", required=False)
@click.option(
    "-n", "--number", type=click.IntRange(1, 10_000), metavar="N", default=20, show_default=True,
    help="List this many records.",
)  # fmt: skip
@click.pass_obj
def history(session: Session, id: str | None, number: int) -> int:
    """List the records of earlier runs, newest first, or show the one with this ID."""
    from arriero.jobs import history as job

    if id is None:
        entries = job.entries(session.store, number)
        session.show(entries)
    else:
        document = job.document(session.store, id)
        session.show(document)
    return 0
