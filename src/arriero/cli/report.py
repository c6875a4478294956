"""``arriero report``."""

from __future__ import annotations

from pathlib import Path

import click

from arriero.base.words import ReportFormat
from arriero.cli import _options
from arriero.cli._group import Command
from arriero.cli._session import Session


@click.command(
    cls=Command, short_help="Write a record for sharing: Markdown, HTML or an issue's text."
)
@click.argument("id")
@click.option(
    "--format", "form", type=_options.Words(ReportFormat), default=ReportFormat.MARKDOWN.value,
    show_default=True,
    help="Write it in this form; upstream is the text for an issue at llama.cpp.",
)  # fmt: skip
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    help="Write it into this file instead of standard output.",
)  # fmt: skip
@click.pass_obj
def report(session: Session, id: str, form: ReportFormat, out: Path | None) -> int:
    """Write a record for others to read, without secrets, paths, names and prompts.

    With --json, the record itself is written, redacted in the same way.
    """
    from arriero.base.redact import Redactor
    from arriero.jobs import history as job
    from arriero.jobs import share
    from arriero.record import encode, write_whole
    from arriero.record.sharing import shared

    document = job.document(session.store, id)
    redactor = Redactor.for_this_machine()
    if session.argv.json:
        data = encode(shared(document, redactor))
    else:
        data = share.render(document, form, redactor).encode()
    if out is None:
        session.write(data)
    else:
        write_whole(out, data)
        session.note(f"wrote {out}")
    return 0
