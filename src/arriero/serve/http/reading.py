"""From bytes of a client to requests, read strictly.

What two parsers could read differently is refused, and the connection ends there: the engine behind
must never see a request that this side did not.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from enum import Enum, auto
from typing import Any, Final

import httptools

from arriero.serve.http.headers import from_client, listed
from arriero.serve.http.interface import Headers, Request
from arriero.serve.http.refused import RefusedError
from arriero.serve.http.rules import Gatekeeper, Held, Limits
from arriero.serve.http.targets import canonical

_TARGET: Final = 16384
"""Bytes of an address."""
_DISCARDED: Final = 1 << 20
"""A longer body of a request that is refused anyway is not waited for."""
_SLOWEST: Final = 1024
"""Bytes a second: a body that comes slower on the whole is given up."""
_OVERHEAD: Final = 9
"""Bytes sent for each byte of a body, when it is sent as foolishly as one can."""
_BAD_TARGET: Final = re.compile(rb"[\0-\x20\x7f#]")
_BAD_VALUE: Final = re.compile(rb"[\0\r\n]")


class Phase(Enum):
    """What a connection is waiting for."""

    FRESH = auto()
    """Its first byte."""
    IDLE = auto()
    HEAD = auto()
    BODY = auto()


class Reader:
    """Reads the requests of one connection; :meth:`feed` hands each to ``found``.

    Attributes:
        deaf: Nothing that comes is read any more.
        owes_continue: A client waits to be told that its body is wanted.
    """

    def __init__(
        self,
        limits: Limits,
        gatekeeper: Gatekeeper,
        held: Held,
        address: str,
        found: Callable[[Request | RefusedError], None],
    ) -> None:
        self.phase = Phase.FRESH
        self.deaf = False
        self.owes_continue = False
        self.held_bytes = 0
        """Of the body that is being read."""
        self._limits, self._gatekeeper, self._held = limits, gatekeeper, held
        self._address, self._found = address, found
        self._parser: Any = httptools.HttpRequestParser(self)
        self._since = self._begun = time.monotonic()
        self._count = 0
        self._fed = 0
        self._body: list[bytes] = []
        self._clear()

    @property
    def target(self) -> bytes:
        """Of the request that is being read, as far as it came."""
        return bytes(self._url)

    @property
    def headers(self) -> Headers:
        """Of the request that is being read, as far as they came."""
        return tuple(self._headers)

    def feed(self, data: bytes) -> None:
        """Read more bytes.

        Raises:
            RefusedError: They are no request; nothing more can be read.
        """
        self._since = time.monotonic()
        if self.phase in (Phase.IDLE, Phase.FRESH):
            self.phase, self._begun = Phase.HEAD, self._since
        count, size = self._count, len(data)
        while data and not self.deaf:
            data = self._parse(data)
        if self.phase in (Phase.HEAD, Phase.BODY) and count == self._count and not self.deaf:
            self._fed += size
            self._check_overhead()

    def late(self, now: float) -> RefusedError | None:
        """What to answer if the client takes too long; empty for one that sent nothing."""
        limits = self._limits
        if self.phase is Phase.HEAD and now - self._begun > limits.header_timeout:
            return RefusedError(408, "the head of the request did not come in time", final=True)
        if self.phase is Phase.BODY:
            most = limits.body_timeout + self._size / _SLOWEST
            if now - self._since > limits.body_timeout or now - self._begun > most:
                return RefusedError(408, "the body of the request did not come in time", final=True)
        return None

    def start_clock(self) -> None:
        """What was not read until now was not the client's fault."""
        self._since = self._begun = time.monotonic()

    def idle_for(self, now: float) -> float:
        """Seconds since the last byte or answer."""
        return now - self._since

    def drop(self) -> None:
        """Forget what was read of a body."""
        self._held.bytes -= self.held_bytes
        self.held_bytes = 0
        self._body = []

    # --- how ---

    def _parse(self, data: bytes) -> bytes:
        """Parse it; what is left is to be parsed anew."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._parser = httptools.HttpRequestParser(self)  # the other protocol is not taken
            rest: bytes = data[int(upgrade.args[0]) :]
            return rest
        except httptools.HttpParserCallbackError as error:
            if isinstance(error.__context__, RefusedError):
                raise error.__context__ from None
            raise
        except httptools.HttpParserError:
            if not self.deaf:
                raise _refused("this is not HTTP/1.1 as the standard has it") from None
        return b""

    def _check_overhead(self) -> None:
        """What the parser keeps or skips without telling: half a header, extensions of chunks."""
        if self._fed > self._limits.max_header + _OVERHEAD * self._size:
            raise self._head_too_long()

    def _clear(self) -> None:
        self._url = bytearray()
        self._headers: list[tuple[bytes, bytes]] = []
        self._head_size = 0
        self._body = []
        self._size = 0
        self._refused: RefusedError | None = None
        self._trailers = False

    def _head_too_long(self) -> RefusedError:
        most = self._limits.max_header
        return RefusedError(
            431, f"the head is longer than {most} bytes, which --max-header allows", final=True
        )

    def _body_too_long(self) -> RefusedError:
        most = self._limits.max_body
        return RefusedError(
            413, f"the body is longer than {most} bytes, which --max-body allows", final=True
        )

    # --- httptools ---

    def on_message_begin(self) -> None:
        self._clear()
        self._count += 1
        self._fed = 0
        self.phase = Phase.HEAD

    def on_url(self, data: bytes) -> None:
        self._url += data
        if len(self._url) > _TARGET:
            raise RefusedError(414, f"the address is longer than {_TARGET} bytes", final=True)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_size += len(name) + len(value) + 4
        if self._head_size > self._limits.max_header:
            raise self._head_too_long()
        if not self._trailers:
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._trailers = True
        length = self._checked_length()
        target = canonical(bytes(self._url))
        if target is None:
            raise _refused("the address has an escape that could be read in two ways")
        self._url = bytearray(target)
        headers = tuple(self._headers)
        refused = self._gatekeeper.admit(self._parser.get_method().decode(), self._path(), headers)
        expects = any(name == b"expect" for name, _ in headers)
        if refused is not None and (expects or length > _DISCARDED):
            refused.final = True
            raise refused
        if length > self._limits.max_body:
            raise self._body_too_long()
        self._refused = refused
        self._begun = self._since
        self.phase = Phase.BODY
        self.owes_continue = expects and self._parser.get_http_version() != "1.0"

    def on_body(self, data: bytes) -> None:
        self.owes_continue = False
        self._size += len(data)
        if self._size > self._limits.max_body:
            raise self._body_too_long()
        if self._refused is not None:
            if self._size > _DISCARDED:
                self._refused.final = True
                raise self._refused
            return
        self._held.take(len(data), self._limits)
        self.held_bytes += len(data)
        self._body.append(data)

    def on_message_complete(self) -> None:
        self.phase, self.owes_continue = Phase.IDLE, False
        keep = bool(self._parser.should_keep_alive())
        self.deaf = not keep
        refused, self._refused = self._refused, None
        if refused is not None:
            refused.final = not keep
            self._found(refused)
            return
        headers = tuple(self._headers)
        request = Request(
            method=self._parser.get_method().decode(),
            target=bytes(self._url),
            path=self._path(),
            headers=from_client(headers),
            body=self._body[0] if len(self._body) == 1 else b"".join(self._body),
            client=self._gatekeeper.client_of(headers, self._address),
            keep_alive=keep,
            http10=self._parser.get_http_version() == "1.0",
        )
        self._body, self.held_bytes = [], 0  # the request has it now
        self._found(request)

    def _path(self) -> str:
        return bytes(self._url).partition(b"?")[0].decode("latin-1")

    def _checked_length(self) -> int:
        """The length of the body as its head says it, 0 for chunks."""
        seen: dict[bytes, list[bytes]] = {}
        for name, value in self._headers:
            if _BAD_VALUE.search(value):
                raise _refused("a header goes over several lines")
            if name in _FRAMING:
                seen.setdefault(name, []).append(value)
        version = self._parser.get_http_version()
        if version not in ("1.0", "1.1"):
            raise RefusedError(505, "this server speaks HTTP/1.0 and HTTP/1.1", final=True)
        hosts = len(seen.get(b"host", ()))
        if hosts > 1 or (not hosts and version == "1.1"):
            raise _refused("there must be one Host header")
        if not self._url.startswith(b"/") or _BAD_TARGET.search(self._url):
            raise _refused("an address is a path here, as /v1/models, without odd characters")
        length = _length(seen, version)
        if b"expect" in seen and listed(self._headers, b"expect") != {b"100-continue"}:
            raise RefusedError(417, "this server expects 100-continue at most", final=True)
        body = length or b"transfer-encoding" in seen
        if body and b"upgrade" in seen and b"upgrade" in listed(self._headers, b"connection"):
            raise _refused("a request with a body cannot change the protocol")
        return length


_FRAMING: Final = frozenset(
    {b"host", b"content-length", b"transfer-encoding", b"expect", b"upgrade"}
)


def _length(seen: dict[bytes, list[bytes]], version: str) -> int:
    lengths = seen.get(b"content-length", ())
    encoded = seen.get(b"transfer-encoding", ())
    if encoded:
        if lengths or version == "1.0" or [v.strip().lower() for v in encoded] != [b"chunked"]:
            raise _refused("the length of the body is said in two ways, or in an unknown one")
        return 0
    if not lengths:
        return 0
    if len(lengths) > 1 or not lengths[0].isdigit() or len(lengths[0]) > 18:
        raise _refused("the length of the body is not one number")
    return int(lengths[0])


def _refused(message: str) -> RefusedError:
    return RefusedError(400, message, final=True)
