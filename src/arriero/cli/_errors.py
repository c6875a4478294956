"""Errors of the command line itself, and what click and Python raise, as errors of Arriero."""

from __future__ import annotations

import os
import sys
from itertools import pairwise
from pathlib import Path
from typing import Final

import click

from arriero.base.errors import ArrieroError, UsageError
from arriero.cli._argv import SEPARATOR, Argv
from arriero.cli._group import cli

_SWITCHES: Final = frozenset({"--json", "--as-given", "--help"})


class StoppedError(ArrieroError):
    """Ctrl-C or SIGTERM ended the command."""

    exit_code = 130
    default_id = "interrupted"

    def __init__(self) -> None:
        super().__init__("interrupted; every process that was started has ended")


class OutputError(ArrieroError):
    """Standard output takes nothing."""

    default_id = "output"

    def __init__(self, error: OSError) -> None:
        reason = error.strerror or error
        super().__init__(
            f"cannot write to standard output: {reason}",
            hint="check that the disk to which it is written has free space",
        )


def misused(error: click.ClickException, argv: Argv) -> UsageError:
    """What click found wrong, with a hint that fits."""
    own = argv.own
    verb = own[0] if own else ""
    message = error.format_message().removesuffix(".")
    if argv.command is None or not argv.command.takes_command or argv.words is not None:
        at = f"{verb} " if verb in cli.commands else ""
        return UsageError(message, hint=f"arriero {at}--help")
    import shlex

    # `arriero diagnose llama-server -m x`: the commonest slip gets its own answer.
    for i, (before, word) in enumerate(pairwise(own), start=1):
        is_value = before.startswith("--") and before not in _SWITCHES
        if ("llama" in word or "server" in word) and not (word.startswith("-") or is_value):
            return UsageError(
                "the command to look at must come after --",
                hint=f"arriero {shlex.join([*own[:i], SEPARATOR, *own[i:]])}",
                id="no-separator",
            )
    return UsageError(
        message, hint=f"write the llama-server command after --: arriero {verb} -- llama-server …"
    )


def of_system(error: OSError) -> ArrieroError:
    """What the system refused, and where."""
    where = f": {os.fsdecode(error.filename)}" if error.filename else ""
    return ArrieroError(f"{error.strerror or error}{where}", id="system")


def unforeseen(error: Exception) -> ArrieroError:
    """A mistake of Arriero's own. ``python -X dev -m arriero`` shows all of it."""
    import traceback

    if sys.flags.dev_mode:
        traceback.print_exception(error)
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return ArrieroError(
        f"a mistake in arriero: {type(error).__name__}: {error}"
        f" ({Path(frame.filename).name}:{frame.lineno})",
        hint="python -X dev -m arriero … shows where; please report it",
        id="internal",
    )
