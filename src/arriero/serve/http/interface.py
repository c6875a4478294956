"""What the two sides of the proxy and the requests between them know of each other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

Headers = tuple[tuple[bytes, bytes], ...]
"""Names in lower case, in the order in which they were sent."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request as a client sent it, read whole before anything is done with it.

    Attributes:
        method: In capitals.
        target: Path and query as they were sent, always in origin form (``/path?query``).
        path: The target without its query, not decoded.
        headers: Those that are passed on: hop-by-hop headers are left out.
        body: Bounded by the setting ``max-body``.
        client: Who asks, for fairness: a digest of the key, else the address. Never the key itself.
        keep_alive: Whether the connection stays open after the answer.
        http10: It is in HTTP/1.0, which has no chunks.
    """

    method: str
    target: bytes
    path: str
    headers: Headers
    body: bytes
    client: str
    keep_alive: bool = True
    http10: bool = False

    def header(self, name: bytes) -> bytes | None:
        """The first header of this name (in lower case)."""
        return next((value for key, value in self.headers if key == name), None)


class Outlet(Protocol):
    """Where the answer to one request is written: its client."""

    @property
    def begun(self) -> bool:
        """Whether the head of an answer has been written."""

    def begin(
        self, status: int, headers: Sequence[tuple[bytes, bytes]], length: int | None
    ) -> None:
        """Write the head. ``length`` is that of the body; None sends it in chunks."""

    def write(self, data: bytes) -> None:
        """Write a piece of the body."""

    async def room(self) -> None:
        """Wait until the client has taken enough of what was written; at once if it has.

        A client that takes nothing for the setting ``write-timeout`` is cut off: then, as when it
        goes by itself, the task that answers it is cancelled.
        """

    def end(self) -> None:
        """The body is whole."""

    def cut(self) -> None:
        """Break the connection off, so that the client knows that the answer is not whole."""


Handler = Callable[[Request, Outlet], Awaitable[None]]
"""Answers one request. It runs as a task of its own, which is cancelled when the client goes."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where an engine listens, privately: a UNIX socket, else a port on loopback."""

    socket: Path | None
    port: int = 0
    key: str = field(default="", repr=False)
    """The engine's own key, made for this one start; sent as ``Authorization: Bearer``."""


class UpstreamLostError(Exception):
    """The connection to the engine ended before the answer was whole.

    Attributes:
        sent: Whether the engine can have begun with the request: it was handed over whole.
    """

    def __init__(self, reason: str, *, sent: bool) -> None:
        super().__init__(reason)
        self.sent = sent


class Call(Protocol):
    """One request at the engine, whose head of an answer has arrived."""

    status: int
    headers: Headers
    """Hop-by-hop headers are left out."""

    async def read(self) -> bytes:
        """The next piece of the body as it arrives, ``b""`` at its end.

        Not reading holds the engine back: little is kept here.

        Raises:
            UpstreamLostError: The connection broke.
        """

    def close(self) -> None:
        """Give up an answer that is not whole: the engine sees the client go and cancels."""


class Upstream(Protocol):
    """The connections to one start of the engine."""

    async def send(
        self,
        method: str,
        target: bytes,
        headers: Headers,
        body: bytes,
        *,
        timeout: float | None = None,
    ) -> Call:
        """Send a request and wait for the head of its answer.

        Raises:
            UpstreamLostError: There is no connection, or it broke first.
            TimeoutError: No head came within ``timeout`` seconds.
        """

    def close(self) -> None:
        """Break off every connection."""
