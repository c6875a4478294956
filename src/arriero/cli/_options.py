"""Options that several commands have, and how their values are read."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from arriero.base.errors import RecordError, UsageError
from arriero.base.sizes import parse_duration, parse_size
from arriero.base.words import LimitKind

if TYPE_CHECKING:
    from arriero.cli._session import Session
    from arriero.process import Limit
    from arriero.record import Diagnosis, Plan

_F = TypeVar("_F", bound=Callable[..., Any])


class Words(click.Choice[StrEnum]):
    """The members of an enum, written as the words that are their values."""

    def normalize_choice(self, choice: object, ctx: click.Context | None) -> str:
        return super().normalize_choice(str(choice), ctx)


def read(parse: Callable[[str], Any]) -> Any:
    """A callback that reads an option's value and names the option if it cannot."""

    def callback(_: click.Context, option: click.Parameter, value: str | None) -> Any:
        try:
            return None if value is None else parse(value)
        except UsageError as error:
            raise UsageError(f"{option.opts[-1]}: {error.message}", hint=error.hint) from None

    return callback


def _together(*options: Callable[[_F], _F]) -> Callable[[_F], _F]:
    """Several options as one decorator."""

    def decorate(function: _F) -> _F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


# --- of a trial ----------------------------------------------------------------------------------

trial_options = _together(
    click.option(
        "--limit", metavar="SIZE", callback=read(parse_size),
        help="Limit the memory of the server, like 3.5GiB.",
    ),
    click.option(
        "--limit-kind", type=Words(LimitKind),
        default=LimitKind.ADDRESS_SPACE.value, show_default=True,
        help="What --limit counts. Address space is not RAM: thread arenas and mapped files count.",
    ),
    click.option(
        "--engine", metavar="PATH", help="Use this llama-server instead of the command's own."
    ),
)  # fmt: skip
load_options = _together(
    click.option(
        "--requests", type=click.IntRange(1, 100_000), metavar="N", default=64, show_default=True,
        help="Require at least this many requests to be served.",
    ),
    click.option(
        "--request-timeout", metavar="TIME", default="120s", show_default=True,
        callback=read(parse_duration),
        help="Give up on a request that is not answered within this time.",
    ),
)  # fmt: skip


def limit_of(size: int | None, kind: LimitKind) -> Limit | None:
    """``--limit`` with ``--limit-kind``."""
    from arriero.process import Limit

    if size == 0:
        raise UsageError("--limit: must be above zero", hint="write it like 3.5GiB")
    return None if size is None else Limit(size, kind)


# --- of a plan -----------------------------------------------------------------------------------


def budget_option(help: str) -> Callable[[_F], _F]:
    """``--budget``: the pools of memory to plan with instead of this machine's."""

    def parse(text: str) -> Any:
        from arriero.memory import parse_pools

        return parse_pools(text)

    return click.option("--budget", metavar="POOLS", callback=read(parse), help=help)


def assume_build_option(help: str) -> Callable[[_F], _F]:
    """``--assume-build``: the build whose rules count, where no engine is to be asked."""
    return click.option("--assume-build", type=click.IntRange(1, 1_000_000), metavar="N", help=help)


def one_of(engine: str | None, assume_build: int | None) -> None:
    """An engine is asked, or a build is assumed."""
    if engine is not None and assume_build is not None:
        raise UsageError("give --engine or --assume-build, not both")


# --- files for sharing ---------------------------------------------------------------------------


def directory_option(help: str) -> Callable[[_F], _F]:
    """``--out``: a directory for what is found out."""
    return click.option(
        "--out", type=click.Path(file_okay=False, path_type=Path), metavar="DIR", help=help
    )


def write_out(session: Session, document: Diagnosis | Plan, out: Path) -> int:
    """Record and reports into a directory; the exit status if they cannot be written."""
    from arriero.base.redact import Redactor
    from arriero.jobs import share

    try:
        for path in share.write_all(document, out, Redactor.for_this_machine()):
            session.note(f"wrote {path}")
    except RecordError as error:  # the answer has been given; this is beside it
        session.note(error.message)
        return error.exit_code
    return 0
