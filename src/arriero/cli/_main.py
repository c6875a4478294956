"""From arguments to an exit status, and the end of the program."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper
from typing import Final, NoReturn

import click

from arriero.base.errors import ArrieroError, UsageError
from arriero.cli import _errors, _signals
from arriero.cli._argv import take_apart
from arriero.cli._errors import OutputError, StoppedError
from arriero.cli._group import cli
from arriero.cli._session import Session

_PRINTED: Final = frozenset({"-h", "--help", "--version"})
"""What click itself answers on standard output."""


def run(argv: list[str]) -> int:
    """Run one command and return its exit status."""
    session = Session(take_apart(argv))
    try:
        return _run(session)
    except OutputError as error:
        return session.fail(error)


def _run(session: Session) -> int:
    own = session.argv.own
    try:
        with cli.make_context("arriero", list(own), obj=session) as context:
            status = cli.invoke(context)
    except click.exceptions.Exit as done:  # --help, --version
        return done.exit_code
    except ArrieroError as error:
        return session.fail(error)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return UsageError.exit_code
    except click.ClickException as error:
        return session.fail(_errors.misused(error, session.argv))
    except KeyboardInterrupt:
        session.leave_echo()
        return session.fail(StoppedError())
    except BrokenPipeError:
        session.write(b"")  # what is still to be written goes nowhere
        return 0
    except OSError as error:
        if not (error.filename or _PRINTED.isdisjoint(own)):
            session.drop()
            return session.fail(OutputError(error))
        return session.fail(_errors.of_system(error))
    except Exception as error:  # noqa: BLE001 - the one place that ends the program
        return session.fail(_errors.unforeseen(error))
    return status if isinstance(status, int) else 0


def main() -> NoReturn:
    """The ``arriero`` command; the one place that ends the program."""
    for stream in (sys.stdout, sys.stderr):
        # A name that is not UTF-8, or a terminal that is not, must not end in an exception.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    _signals.catch()
    status = run(sys.argv[1:])
    _signals.ignore()
    if status == StoppedError.exit_code:
        # CPython dies of SIGINT if the interrupt went through an exec() of text, as in a dataclass.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)
