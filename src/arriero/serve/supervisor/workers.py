"""Workers that an engine computes with (``--rpc``): whether they are there.

An engine that does not find a worker while it starts says so in one line and puts the worker's part
into the memory of this machine (seen on 10068 and 10434). So a restart waits for workers that were
there before.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from arriero.command import Command
from arriero.launch.placement import workers

_ANSWER_SECONDS: Final = 2.0
_MOST_WORKERS: Final = 64
_POLL: Final = 1.0


class Workers:
    """The workers that a start found."""

    def __init__(self) -> None:
        self._there: frozenset[str] = frozenset()

    async def look(self, command: Command) -> None:
        """Note which are there, before a start."""
        named = frozenset(workers(command))
        if named:
            self._there = named - await asyncio.to_thread(silent, named, takes_connections)

    async def back(self, command: Command, tell: Callable[[str], None]) -> None:
        """Wait for those of this command that were there, as long as it takes."""
        while wanted := self._there & {*workers(command)}:
            gone = await asyncio.to_thread(silent, wanted, takes_connections)
            if not gone:
                return
            tell(f"waiting for the worker {', '.join(sorted(gone))}")
            await asyncio.sleep(_POLL)


def silent(endpoints: Iterable[str], answers: Callable[[str], bool]) -> frozenset[str]:
    """The workers that do not answer, asked side by side."""
    asked = tuple(endpoints)[:_MOST_WORKERS]
    if not asked:
        return frozenset()
    with ThreadPoolExecutor(len(asked), "worker") as pool:
        found = [*pool.map(answers, asked)]
    return frozenset(name for name, there in zip(asked, found, strict=True) if not there)


def takes_connections(endpoint: str) -> bool:
    """Whether anything listens there."""
    host, _, port = endpoint.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _ANSWER_SECONDS):
            return True
    except (OSError, ValueError):
        return False
