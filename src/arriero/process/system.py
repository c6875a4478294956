"""The functions that start and end processes on this system: with a guard, or only with psutil."""

import sys

if sys.platform == "win32":
    from arriero.process.plain import Running, run, run_at_once, scratch_directory, start, sweep
else:
    from arriero.process.asking import run, run_at_once
    from arriero.process.leftovers import sweep
    from arriero.process.running import Running, scratch_directory, start

__all__ = ["Running", "run", "run_at_once", "scratch_directory", "start", "sweep"]
