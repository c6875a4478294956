"""``arriero incidents``."""

from __future__ import annotations

import click

from arriero.cli._group import Command
from arriero.cli._session import Session


@click.command(
    cls=Command, short_help="List the losses of engines under arriero serve, or show one."
)
@click.argument("id", required=False)
@click.option(
    "-n", "--number", type=click.IntRange(1, 10_000), metavar="N", default=20, show_default=True,
    help="List this many of the history.",
)  # fmt: skip
@click.option(
    "--url", metavar="URL",
    help="Ask the server at this address for those of its run, instead of the history.",
)  # fmt: skip
@click.option(
    "--api-key", envvar="LLAMA_API_KEY", metavar="KEY",
    help="Use this API key for the server at URL.  [env: LLAMA_API_KEY]",
)  # fmt: skip
@click.pass_obj
def incidents(
    session: Session, id: str | None, number: int, url: str | None, api_key: str | None
) -> int:
    """List when and why engines were lost under arriero serve, newest first, or show one.

    They are kept in the history of this machine. With ID, the verdict, what was done, what it cost
    and the last lines of the log are shown; arriero report ID writes it for sharing.
    """
    from arriero.jobs import incidents as job

    if url is None:
        found = job.incidents(session.store, number) if id is None else None
        session.show(found or job.incident(session.store, str(id)))
    elif id is None:
        session.show(job.incidents_at(url, api_key=api_key))
    else:
        session.show(job.incident_at(url, id, api_key=api_key))
    return 0
