"""The command line: parses and prints, nothing else. The work is in :mod:`arriero.jobs`.

One file per command, loaded when the command is used; each imports the rooms that it needs when it
runs, so that ``arriero --help`` is quick. What they share is beside them: ``_group`` (the program
and its commands), ``_options``, ``_argv`` (whose argument is it?), ``_session`` (output, history),
``_errors``, ``_signals``, and ``_main``, which runs a command and ends the program.
"""

from arriero.cli._group import cli
from arriero.cli._main import main, run
from arriero.cli._session import Session

__all__ = ["Session", "cli", "main", "run"]
