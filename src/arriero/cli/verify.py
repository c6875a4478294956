"""``arriero verify``."""

from __future__ import annotations

import click

from arriero.base.errors import UsageError
from arriero.base.words import LimitKind
from arriero.cli import _options
from arriero.cli._group import Command
from arriero.cli._session import Session


@click.command(
    cls=Command,
    takes_command=True,
    short_help="Send a server many requests and see whether it serves them.",
)
@click.argument("url", required=False, metavar="(URL | -- llama-server ...)")
@_options.trial_options
@_options.load_options
@click.option(
    "--api-key", envvar="LLAMA_API_KEY", metavar="KEY",
    help="Use this API key for the server at URL.  [env: LLAMA_API_KEY]",
)  # fmt: skip
@click.pass_obj
def verify(
    session: Session,
    url: str | None,
    limit: int | None,
    limit_kind: LimitKind,
    engine: str | None,
    requests: int,
    request_timeout: float,
    api_key: str | None,
) -> int:
    """Send a server many requests and see whether it serves them all.

    URL is a running server. With a command after -- instead, Arriero starts it, loads it and ends
    it.
    """
    from arriero.jobs import verify as job
    from arriero.trial import Patience

    options = job.VerifyOptions(
        engine=engine,
        limit=_options.limit_of(limit, limit_kind),
        requests=requests,
        api_key=api_key,
        patience=Patience(request_s=request_timeout),
    )
    if (url is None) == (session.argv.words is None):
        raise UsageError(
            "give either the address of a running server or a command after --",
            hint="arriero verify http://127.0.0.1:8080   or   arriero verify -- llama-server -m …",
        )
    if url is not None:
        document = job.verify_url(url, options, store=session.store)
    else:
        document = job.verify(
            session.required("verify"),
            options,
            store=session.store,
            progress=session.progress(),
        )
    session.show(document)
    if not document.complete:
        return session.stopped()
    return 0 if document.failure is None else 1
