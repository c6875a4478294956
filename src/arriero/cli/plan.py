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
    short_help="What a command will take of memory; nothing is loaded.",
    options_metavar="[OPTIONS] MODEL [llama-server options]",
)
@_options.budget_option(
    "Memory to plan for instead of this machine's, like CUDA0=24GiB,host=64GiB."
)
@click.option("--frontier", is_flag=True, help="Also the largest context for 1, 2, 4 … slots.")
@click.option("--engine", metavar="PATH", help="The llama-server to ask for sizes it alone knows.")
@_options.assume_build_option("Ask no engine; take the rules of this llama.cpp build.")
@_options.directory_option("Write the plan and reports, redacted for sharing, into this directory.")
@click.pass_obj
def plan(
    session: Session,
    budget: tuple[Pool, ...] | None,
    frontier: bool,
    engine: str | None,
    assume_build: int | None,
    out: Path | None,
) -> int:
    """Say what a llama-server command will take, before it is started.

    \b
        arriero plan m.gguf -c 8192 -np 4
        arriero plan -- llama-server ...

    Every buffer with where its size comes from, what is left of each pool of memory, what to change
    if it does not fit. MODEL is a file, any part of a split set, or an http(s):// or hf:// address,
    of which only the header is read.
    """
    from arriero.jobs import plan as job

    _options.one_of(engine, assume_build)
    options = job.Options(
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
        return session.stopped("interrupted: advice or frontier are missing")
    return 1 if document.starts is False or document.failure is not None else 0
