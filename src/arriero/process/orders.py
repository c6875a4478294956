"""A command as a guard is told of it: its file, its environment, its limit."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from arriero.base.errors import NotFoundError
from arriero.base.sizes import human
from arriero.base.words import LimitKind
from arriero.process import cgroup as cgroups
from arriero.process.model import Job, Limit, ProcessError

assert sys.platform != "win32", "see plain.py"  # noqa: S101 - mypy knows this form


def job_of(
    argv: Sequence[str | os.PathLike[str]], file: str, env: Mapping[str, str], cwd: Path | None
) -> Job:
    try:
        here = Path.cwd()
    except FileNotFoundError:
        raise ProcessError("the current directory has been removed", id="not-executable") from None
    return {
        "command": [os.fsencode(word) for word in argv],
        "file": os.fsencode(file),
        "environment": {os.fsencode(key): os.fsencode(value) for key, value in env.items()},
        "cwd": os.fsencode(here / cwd if cwd else here),
    }


def resolve(
    argv: Sequence[str | os.PathLike[str]], env: Mapping[str, str], cwd: Path | None
) -> str:
    """The file to execute: a path as it is, a bare name looked up in ``PATH``."""
    if not argv or not os.fspath(argv[0]):
        raise ProcessError("the command is empty", id="not-executable")
    if any("\0" in os.fspath(word) for word in argv):
        raise ProcessError("an argument contains a NUL character", id="not-executable")
    name = os.fspath(argv[0])
    if os.sep in name:
        return name
    found = shutil.which(name, path=env.get("PATH", os.defpath))
    if found is None:
        raise NotFoundError(
            f"there is no program {name} in PATH",
            hint="give its path, or correct PATH",
            id="no-program",
        )
    return found


def put_limit(job: Job, limit: Limit | None) -> cgroups.MemoryCgroup | None:
    """Put a limit into the job; the cgroup's parent if it is one (its name needs the guard)."""
    import resource

    import psutil  # late: few are started with a limit

    if limit is None:
        return None
    if not psutil.LINUX:
        raise ProcessError(
            "this system cannot limit the memory of a process",
            hint="run without --limit, or on Linux",
            id="limit",
        )
    if limit.bytes <= 0:
        raise ProcessError("the memory limit must be above zero", id="limit")
    if limit.kind is LimitKind.ADDRESS_SPACE:
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        if hard != resource.RLIM_INFINITY and limit.bytes > hard:
            raise ProcessError(
                f"the limit of {human(limit.bytes)} is above the shell's own of {human(hard)}",
                hint="raise `ulimit -Hv`, or set a lower limit",
                id="limit",
            )
        job["address_space"] = limit.bytes
        return None
    parent = cgroups.place()
    job["cgroup_settings"] = cgroups.settings(parent, limit.bytes)
    job["cgroup_peak"] = parent.peak_file
    job["cgroup_events"] = parent.events_file
    return parent
