"""Remove what is left after both Arriero and a guard were killed; the next start does it."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path
from typing import Final

from arriero.process import cgroup as cgroups
from arriero.process import guard

assert sys.platform != "win32", "see plain.py"  # noqa: S101 - mypy knows this form

_EMPTY_SECONDS: Final = 60.0
_ROUNDS: Final = 100
_SCAN_CEILING: Final = 4096


def sweep(parent: Path) -> tuple[Path, ...]:
    """End processes and remove scratch directories and cgroups of guards that are dead.

    Only ``arriero-*`` directories in ``parent`` are looked at. Whose guard lives is told by a lock
    that the kernel drops with the guard, so it works between containers that share ``parent``.
    Returns the directories that were removed. Never fails: what may not be touched is left alone.
    """
    for _ in range(_ROUNDS):
        if not _end_orphans():
            break
    _remove_cgroups()
    removed = []
    with contextlib.suppress(OSError):
        for path in sorted(parent.glob("arriero-*"))[:_SCAN_CEILING]:
            if path.is_dir() and not path.is_symlink() and _abandoned(path):
                guard.remove_tree(str(path))
                removed.append(path)
    return tuple(removed)


def _abandoned(path: Path) -> bool:
    import fcntl

    try:
        fd = os.open(path / guard.LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        # Killed between making the directory and locking it: nothing is in it yet.
        with contextlib.suppress(OSError):
            names = {entry.name for entry in path.iterdir()}
            age = time.time() - path.stat().st_mtime
            return names <= {f"{guard.LOCK}.new"} and age > _EMPTY_SECONDS
        return False
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(fd)


def _alive(marker: str, separator: str = ":") -> bool:
    """Whether the guard ``<pid><separator><start time>`` still runs."""
    pid, _, started = marker.partition(separator)
    found = guard.stat(int(pid)) if pid.isdigit() else None
    return found is not None and str(found[2]) == started and found[0] != "Z"


def _end_orphans() -> bool:
    """Kill what carries the marker of a guard that is gone; whether there was anything.

    Processes of another pid namespace are left alone: their guard's pid means nothing here.
    """
    namespace = _namespace("self")
    prefix = f"{guard.MARKER}=".encode()
    any_left = False
    for pid in guard.pids():
        environment = guard.read_file(f"/proc/{pid}/environ", 1 << 20) or b""
        for entry in environment.split(b"\0"):
            if not entry.startswith(prefix):
                continue
            marker = entry[len(prefix) :].decode(errors="replace")
            if not _alive(marker) and _namespace(str(pid)) == namespace:
                guard.kill(pid)
                any_left = True
    return any_left


def _namespace(pid: str) -> str:
    try:
        return str(Path(f"/proc/{pid}/ns/pid").readlink())
    except OSError:
        return ""


def _remove_cgroups() -> None:
    here = cgroups.own()
    if here is None:
        return
    for parent in here.ancestry():
        with contextlib.suppress(OSError):
            for path in list(parent.glob("arriero-*"))[:_SCAN_CEILING]:
                if not _alive(path.name.removeprefix("arriero-"), "-"):
                    with contextlib.suppress(OSError):
                        path.rmdir()
