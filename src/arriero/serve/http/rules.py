"""What the side of the clients is told: limits, and who may ask."""

from __future__ import annotations

from typing import Protocol

from arriero.serve.http.interface import Headers
from arriero.serve.http.refused import RefusedError


class Limits(Protocol):
    """The settings that bound a connection (:class:`arriero.serve.settings.Settings`)."""

    @property
    def max_body(self) -> int: ...
    @property
    def max_header(self) -> int: ...
    @property
    def max_connections(self) -> int: ...
    @property
    def header_timeout(self) -> float: ...
    @property
    def body_timeout(self) -> float: ...
    @property
    def write_timeout(self) -> float: ...
    @property
    def idle_timeout(self) -> float: ...


class Gatekeeper(Protocol):
    """Who may ask for what (:mod:`arriero.serve.access`)."""

    def admit(self, method: str, path: str, headers: Headers) -> RefusedError | None:
        """None lets the request in; called before its body is read."""

    def has_key(self, headers: Headers) -> bool:
        """Whether it brings a key, or none is needed."""

    def client_of(self, headers: Headers, address: str) -> str:
        """Whom the request counts for; never a key."""

    def answer_headers(self, path: str, headers: Headers) -> Headers:
        """What every answer to this request carries."""

    def error(self, path: str, status: int, message: str) -> tuple[Headers, bytes]:
        """An error as clients of this path expect it."""


class Held:
    """Bytes of bodies that are in memory, of all connections together.

    One connection is bounded by ``max-body``; many at once are bounded here.
    """

    def __init__(self) -> None:
        self.bytes = 0

    def take(self, more: int, limits: Limits) -> None:
        """Count more bytes.

        Raises:
            RefusedError: That would be too many.
        """
        if self.bytes + more > max(4 * limits.max_body, _AT_LEAST):
            raise RefusedError(
                503,
                "too many large requests are in work: send this one again later",
                ((b"retry-after", b"5"),),
                final=True,
            )
        self.bytes += more


_AT_LEAST = 1 << 26
