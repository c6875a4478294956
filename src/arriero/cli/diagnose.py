"""``arriero diagnose``."""

from __future__ import annotations

from pathlib import Path

import click

from arriero.base.sizes import parse_duration
from arriero.base.words import LimitKind
from arriero.cli import _options
from arriero.cli._group import Command
from arriero.cli._session import Session


@click.command(
    cls=Command,
    takes_command=True,
    short_help="Find why a command does not run, and the smallest fix.",
    options_metavar="[OPTIONS] -- llama-server ...",
)
@_options.trial_options
@click.option(
    "--from-log", type=click.Path(path_type=Path), metavar="FILE",
    help="Take the failure from this log instead of starting the command as given.",
)  # fmt: skip
@click.option(
    "--as-given", is_flag=True,
    help="Start the command as given, even if it could fill the machine's memory.",
)  # fmt: skip
@click.option(
    "--max-time", metavar="TIME", callback=_options.read(parse_duration),
    help="End the diagnosis after this time, like 10m.",
)  # fmt: skip
@click.option(
    "--max-launches", type=click.IntRange(1, 200), metavar="N", default=24, show_default=True,
    help="Start the server at most this many times.",
)  # fmt: skip
@_options.load_options
@click.option(
    "--stall-timeout", metavar="TIME", default="60s", show_default=True,
    callback=_options.read(parse_duration),
    help="Give up on a loading server that does nothing for this long.",
)  # fmt: skip
@_options.directory_option(
    "Write the record and its reports, redacted for sharing, into this directory."
)
@click.pass_obj
def diagnose(
    session: Session,
    limit: int | None,
    limit_kind: LimitKind,
    engine: str | None,
    from_log: Path | None,
    as_given: bool,
    max_time: float | None,
    max_launches: int,
    requests: int,
    request_timeout: float,
    stall_timeout: float,
    out: Path | None,
) -> int:
    """Find out why a llama-server command does not run.

    Write the command after --, exactly as you type it:

    \b
        arriero diagnose -- llama-server -m model.gguf -c 65536 -np 8

    Arriero starts the server small, then as given, and names the first allocation that failed. A
    handful of further starts shows how many slots and how much context work. The smallest change
    that makes it serve is proved under load. Everything is kept as a record (arriero history).
    """
    words = session.required("diagnose")

    from arriero.jobs import diagnose as job
    from arriero.jobs import share
    from arriero.trial import Patience

    options = job.DiagnoseOptions(
        engine=engine,
        limit=_options.limit_of(limit, limit_kind),
        from_log=from_log,
        max_time=max_time,
        max_launches=max_launches,
        as_given=as_given,
        requests=requests,
        patience=Patience(request_s=request_timeout, stall_s=stall_timeout),
    )
    if out is not None:
        share.prepare(out)
    document = job.diagnose(
        words, options, store=session.store, progress=session.progress(max_time)
    )
    session.show(document)
    if out is not None and (status := _options.write_out(session, document, out)):
        return status
    if document.interrupted:
        return session.stopped()
    served = document.verdict is None and document.recommendation is not None
    return 0 if served and document.complete else 1
