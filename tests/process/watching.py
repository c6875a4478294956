"""Looks at the machine from outside: what is left of a tree."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from arriero.process import cgroup


def exists(pid: int) -> bool:
    """Whether it still runs. A zombie only waits to be collected, unless threads of it run."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state != "Z" or len(list(Path(f"/proc/{pid}/task").iterdir())) > 1
    except OSError:
        return False


def carrying(token: str) -> list[int]:
    """Processes with ``token`` in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if token.encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def noted(path: Path) -> list[int]:
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def eventually(done: Callable[[], bool], seconds: float = 30.0) -> bool:
    """Whether it becomes true; the bound only keeps a failing test from hanging."""
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def alive(pids: Iterable[int]) -> list[int]:
    return [pid for pid in pids if exists(pid)]


def own_cgroups() -> set[str]:
    here = cgroup.own()
    return {path.name for path in here.path.glob("arriero-*")} if here else set()


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
