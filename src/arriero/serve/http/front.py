"""The side of the clients: listens, and keeps their connections within bounds."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket as socketlib
import ssl
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from arriero.serve.http.connection import Connection
from arriero.serve.http.interface import Handler
from arriero.serve.http.refused import RefusedError
from arriero.serve.http.rules import Gatekeeper, Held, Limits

__all__ = ["Gatekeeper", "Limits", "Listener", "RefusedError"]

_TICK: Final = 1.0
_BACKLOG: Final = 1024
_TLS_SECONDS: Final = 10.0
_OTHER_FILES: Final = 256
"""Descriptors beside those of clients."""


class Listener:
    """Listens, and answers each request through ``handler``, as a task of its own.

    ``limits`` and ``gatekeeper`` can be replaced while it runs: connections that come later get the
    new ones.

    Attributes:
        refused: Told of each request that was answered here: refused or not understood.
    """

    def __init__(self, limits: Limits, gatekeeper: Gatekeeper, handler: Handler) -> None:
        self.limits = limits
        self.gatekeeper = gatekeeper
        self.handler = handler
        self.held = Held()
        self.connections: set[Connection] = set()
        self.refused: Callable[[], None] = lambda: None
        self.draining = False
        self._servers: list[asyncio.Server] = []
        self._sockets: list[Path] = []
        self._ticker: asyncio.Task[None] | None = None

    async def listen(
        self, host: str, port: int, socket: Path | None, tls: ssl.SSLContext | None
    ) -> int:
        """Begin to listen; the port (0 for a UNIX socket).

        Raises:
            OSError: The address cannot be had.
        """
        _allow_files(self.limits.max_connections + _OTHER_FILES)
        loop = asyncio.get_running_loop()
        patience = None if tls is None else _TLS_SECONDS
        if socket is not None:
            _leave_alone(socket)
            mask = os.umask(0o177)
            try:
                server = await loop.create_unix_server(
                    lambda: Connection(self), str(socket), ssl=tls, backlog=_BACKLOG,
                    ssl_handshake_timeout=patience, ssl_shutdown_timeout=patience,
                )  # fmt: skip
            finally:
                os.umask(mask)
            self._sockets.append(socket)
        else:
            server = await loop.create_server(
                lambda: Connection(self), host, port, ssl=tls, backlog=_BACKLOG,
                ssl_handshake_timeout=patience, ssl_shutdown_timeout=patience,
            )  # fmt: skip
        self._servers.append(server)
        self._ticker = self._ticker or asyncio.create_task(self._tick())
        names = [s.getsockname() for s in server.sockets]
        return 0 if socket is not None else int(names[0][1])

    def close_listeners(self) -> None:
        """Take no new connection; idle ones are closed, busy ones after their answer."""
        self.draining = True
        for server in self._servers:
            server.close()
        for path in self._sockets:
            with contextlib.suppress(OSError):
                if stat.S_ISSOCK(path.lstat().st_mode):
                    path.unlink()
        self._sockets.clear()
        for connection in [*self.connections]:
            connection.close_if_idle()

    async def close(self) -> None:
        """Break off what is still there."""
        self.close_listeners()
        ticker, self._ticker = self._ticker, None
        tasks = [c.task for c in self.connections if c.task is not None]
        if ticker is not None:
            ticker.cancel()
            tasks.append(ticker)
        for connection in [*self.connections]:
            connection.abort()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- what its connections ask ---

    def enters(self, connection: Connection) -> bool:
        """See :class:`House`. When it is full, the one that has been idle longest makes room."""
        if self.draining:
            return False
        if len(self.connections) >= self.limits.max_connections:
            idle = [(c.idle_since, c) for c in self.connections]
            waiting = [(since, c) for since, c in idle if since is not None]
            if not waiting:
                return False
            longest = min(waiting, key=lambda one: one[0])[1]
            self.connections.discard(longest)
            longest.abort()
        self.connections.add(connection)
        return True

    def leaves(self, connection: Connection) -> None:
        """See :class:`House`."""
        self.connections.discard(connection)

    def refuses(self) -> None:
        """See :class:`House`."""
        self.refused()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK)
            now = time.monotonic()
            for connection in [*self.connections]:
                connection.look_at_clock(now)


def _leave_alone(path: Path) -> None:
    """See that no other server listens there: its socket would be replaced without a word.

    Raises:
        OSError: One does.
    """
    if sys.platform != "win32":
        with socketlib.socket(socketlib.AF_UNIX, socketlib.SOCK_STREAM) as made:
            made.settimeout(1.0)
            try:
                made.connect(str(path))
            except (FileNotFoundError, ConnectionRefusedError):
                return  # nobody, or what a server left behind
        raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


def _allow_files(wanted: int) -> None:
    """Let this process have as many descriptors, where the system lets it."""
    if sys.platform != "win32":
        import resource  # there is none on Windows

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        if soft != resource.RLIM_INFINITY and soft < most:
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
