"""Start, limit, drain, sample and surely end a process tree. No other room starts processes."""

from __future__ import annotations

import sys

from arriero.process.model import Completed, Exit, Limit, Memory, ProcessError
from arriero.process.surroundings import clean_environment, free_port, temporary_directory

if sys.platform == "win32":
    from arriero.process.plain import Running, run, scratch_directory, start, sweep
else:
    from arriero.process.running import Running, run, scratch_directory, start
    from arriero.process.sweep import sweep

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
    "scratch_directory",
    "start",
    "sweep",
    "temporary_directory",
]
