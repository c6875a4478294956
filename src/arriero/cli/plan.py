"""``arriero plan``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from arriero.cli import _options
from arriero.cli._group import Command
from arriero.cli._session import Session

if TYPE_CHECKING:
    from arriero.machine import Pool


@click.command(
    cls=Command,
    takes_command=True,
    short_help="Say how much memory a command will take, without loading it.",
    options_metavar="[OPTIONS] MODEL [llama-server options]",
)
@_options.budget_option(
    "Plan for this memory instead of this machine's, like CUDA0=24GiB,host=64GiB."
)
@click.option("--frontier", is_flag=True, help="Also find the largest context for 1, 2, 4 … slots.")
@click.option(
    "--engine", metavar="PATH", help="Ask this llama-server for the sizes that only it knows."
)
@_options.assume_build_option("Ask no engine; use the rules of this llama.cpp build.")
@_options.directory_option(
    "Write the plan and its reports, redacted for sharing, into this directory."
)
@click.pass_obj
def plan(
    session: Session,
    budget: tuple[Pool, ...] | None,
    frontier: bool,
    engine: str | None,
    assume_build: int | None,
    out: Path | None,
) -> int:
    """Say how much memory a llama-server command will take, before you start it.

    \b
        arriero plan m.gguf -c 8192 -np 4
        arriero plan -- llama-server ...

    The plan lists every buffer and how its size is known, what is left in each pool of memory, and
    what to change if the command does not fit. MODEL is a file, any part of a split set, or an
    http(s):// or hf:// address, of which only the header is read.
    """
    from arriero.jobs import plan as job

    _options.one_of(engine, assume_build)
    options = job.PlanOptions(
        engine=engine,
        budget=budget,
        frontier=frontier,
        assume_build=assume_build,
        bare=session.argv.bare,
    )
    if out is not None:
        from arriero.jobs import share

        share.prepare(out)
    document = job.plan(
        session.argv.words or [], options, store=session.store, progress=session.progress()
    )
    session.show(document)
    if out is not None and (status := _options.write_out(session, document, out)):
        return status
    if not document.complete:
        session.leave_echo()
        return session.stopped("interrupted: the advice or the frontier is missing")
    return 1 if document.starts is False or document.failure is not None else 0
