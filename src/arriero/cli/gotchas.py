"""``arriero gotchas``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import assert_never

import click

from arriero.base.errors import UsageError
from arriero.cli import _options
from arriero.cli._group import Command
from arriero.cli._session import Session


class Action(StrEnum):
    """What to do with them."""

    LIST = "list"
    SHOW = "show"
    VERIFY = "verify"


@click.command(
    cls=Command, short_help="List known failures, show one, or reproduce them on an engine."
)
@click.argument("action", type=_options.Words(Action))
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("--engine", metavar="PATH", help="Verify on this llama-server.")
@click.option(
    "--worker-engine",
    metavar="PATH",
    help="A llama-server of another build, for tests in which the engine must refuse a worker.",
)
@_options.directory_option("Keep the verdicts in this directory instead of beside the history.")
@click.pass_obj
def gotchas(
    session: Session,
    action: Action,
    ids: tuple[str, ...],
    engine: str | None,
    worker_engine: str | None,
    out: Path | None,
) -> int:
    """List what is known to break, show one gotcha, or reproduce gotchas on an engine.

    list prints them all, show prints the one with this ID. verify reproduces the gotchas named by
    ID, or all of them: it runs each failure and, as a control, the same with the workaround, and
    keeps the verdicts. Only verdicts decide the status of a gotcha.
    """
    match action:
        case Action.LIST:
            return _list(session, ids)
        case Action.SHOW:
            return _show(session, ids)
        case Action.VERIFY:
            return _verify(session, ids, engine, out, worker_engine)
        case _:
            assert_never(action)


def _list(session: Session, ids: tuple[str, ...]) -> int:
    from arriero.jobs import gotchas as job

    if ids:
        raise UsageError("list takes no ID", hint=f"arriero gotchas show {ids[0]}")
    every = job.entries()
    session.show(every)
    return 0


def _show(session: Session, ids: tuple[str, ...]) -> int:
    from arriero.jobs import gotchas as job

    if len(ids) != 1:
        raise UsageError("show takes one ID", hint="arriero gotchas list shows all")
    one = job.entry(ids[0])
    session.show(one)
    return 0


def _verify(
    session: Session,
    ids: tuple[str, ...],
    engine: str | None,
    out: Path | None,
    worker_engine: str | None,
) -> int:
    from arriero.jobs import gotchas as job

    options = job.ReproduceOptions(engine, out, worker_engine)
    verdicts = job.verify(ids, options, progress=session.progress())
    session.show(verdicts)
    if not verdicts.complete:
        return session.stopped()
    ran = [v for v in verdicts.verdicts if v.verdict != "could not run"]
    return 0 if ran or not verdicts.verdicts else 1
