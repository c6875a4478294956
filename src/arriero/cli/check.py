"""``arriero check``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from arriero.base.errors import UsageError
from arriero.cli import _options
from arriero.cli._group import Command
from arriero.cli._session import Session

if TYPE_CHECKING:
    from arriero.machine import Pool


@click.command(
    cls=Command,
    takes_command=True,
    short_help="Find what is known to break in a command, before you start it.",
    options_metavar="[OPTIONS]",
)
@click.argument("file", required=False, metavar="(FILE | -- llama-server ...)")
@_options.budget_option(
    "Check against this memory instead of this machine's, like CUDA0=24GiB,host=64GiB."
)
@click.option("--engine", metavar="PATH", help="Use the flags and the build of this llama-server.")
@_options.assume_build_option("Ask no engine; use the flags and rules of this llama.cpp build.")
@click.option("--probe", is_flag=True, help="Allow the engine to contact the workers of --rpc.")
@click.option("--fix", is_flag=True, help="Print only the corrected command line.")
@click.pass_obj
def check(
    session: Session,
    file: str | None,
    budget: tuple[Pool, ...] | None,
    engine: str | None,
    assume_build: int | None,
    probe: bool,
    fix: bool,
) -> int:
    """Find what is known to go wrong with a llama-server command, without starting it.

    FILE is a shell script, a systemd unit, a Quadlet container, a Dockerfile, a compose, llama-swap
    or Kubernetes file, a models preset (INI) or a JSON array of arguments. Arriero runs nothing in
    it and fills in nothing from the environment.
    """
    from arriero.jobs import check as job

    _options.one_of(engine, assume_build)
    if (file is None) == (session.argv.words is None):
        raise UsageError(
            "give either a file with commands or a command after --",
            hint="arriero check start.sh   or   arriero check -- llama-server -m …",
        )
    options = job.CheckOptions(engine=engine, budget=budget, assume_build=assume_build, probe=probe)
    document = (
        job.check_file(Path(file), options)
        if file is not None
        else job.check(session.required("check"), options)
    )
    if fix and not session.argv.json:
        for note in job.fixed_notes(document):
            session.note(note)
        lines = job.fixed_lines(document)
        session.write("".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape"))
    else:
        session.show(document)
    return 1 if job.worst(document) == "error" else 0
