"""Start, limit, drain, sample and surely end a process tree. No other room starts processes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from arriero.base.late import late
from arriero.process.model import Completed, Exit, Limit, Memory, ProcessError

if sys.platform != "win32":
    from arriero.process.sweep import sweep
if TYPE_CHECKING:
    from arriero.process.surroundings import clean_environment, free_port, temporary_directory

    if sys.platform == "win32":
        from arriero.process.plain import Running, run, run_at_once, scratch_directory, start, sweep
    else:
        from arriero.process.running import Running, run, run_at_once, scratch_directory, start
else:
    _START: Final = "Running run run_at_once scratch_directory start"
    _ON: Final = {"plain": f"{_START} sweep"} if sys.platform == "win32" else {"running": _START}
    __getattr__ = late(
        __name__, surroundings="clean_environment free_port temporary_directory", **_ON
    )

__all__ = [
    "Completed",
    "Exit",
    "Limit",
    "Memory",
    "ProcessError",
    "Running",
    "clean_environment",
    "free_port",
    "run",
    "run_at_once",
    "scratch_directory",
    "start",
    "sweep",
    "temporary_directory",
]
