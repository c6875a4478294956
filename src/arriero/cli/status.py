"""``arriero status``."""

from __future__ import annotations

import click

from arriero.base.words import ServerState
from arriero.cli._group import Command
from arriero.cli._session import Session


@click.command(cls=Command, short_help="Ask a server that Arriero keeps up how it is doing.")
@click.argument("url", required=False, default="http://127.0.0.1:8080")
@click.option(
    "--api-key", envvar="LLAMA_API_KEY", metavar="KEY",
    help="Use this API key.  [env: LLAMA_API_KEY]",
)  # fmt: skip
@click.pass_obj
def status(session: Session, url: str, api_key: str | None) -> int:
    """Show state, requests, memory, slots and incidents of a running arriero serve.

    URL is its address, http://127.0.0.1:8080 by default. The exit status is 1 if the server has
    given its engine up.
    """
    from arriero.jobs import status as job

    document = job.status(url, api_key=api_key)
    session.show(document)
    return 1 if document.state is ServerState.FAILED else 0
