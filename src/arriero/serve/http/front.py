"""The side of the clients: connections, requests read whole, answers written with backpressure."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Protocol, cast

import httptools

from arriero.serve.http.headers import from_client, head_of_answer, listed
from arriero.serve.http.interface import Handler, Headers, Request

_PIPELINED: Final = 16
"""Requests that may wait behind one on the same connection before it is not read any more."""
_TARGET: Final = 16384
_TICK: Final = 1.0
_WRITE_HIGH: Final = 1 << 18
"""Bytes that a client has not taken before its answer waits."""


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


class RefusedError(Exception):
    """A request that is answered without anyone else seeing it."""

    def __init__(
        self, status: int, message: str, headers: Headers = (), body: bytes | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = headers
        self.body = body


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


class Listener:
    """Listens, and answers each request through ``handler``, as a task of its own."""

    def __init__(self, limits: Limits, gatekeeper: Gatekeeper, handler: Handler) -> None:
        self.limits = limits
        self.gatekeeper = gatekeeper
        self.handler = handler
        self.connections: set[Connection] = set()
        self.refused: Callable[[], None] = lambda: None
        """Told of each request that was answered here: refused or not understood."""
        self.draining = False
        self._servers: list[asyncio.Server] = []
        self._ticker: asyncio.Task[None] | None = None

    async def listen(
        self, host: str, port: int, socket: Path | None, tls: ssl.SSLContext | None
    ) -> int:
        """Begin to listen; the port (0 for a UNIX socket).

        Raises:
            OSError: The address cannot be had.
        """
        loop = asyncio.get_running_loop()
        if socket is not None:
            server = await loop.create_unix_server(
                lambda: Connection(self), str(socket), ssl=tls, backlog=1024
            )
            socket.chmod(0o600)
        else:
            server = await loop.create_server(
                lambda: Connection(self), host, port, ssl=tls, backlog=1024
            )
        self._servers.append(server)
        self._ticker = self._ticker or asyncio.create_task(self._tick())
        names = [s.getsockname() for s in server.sockets]
        return 0 if socket is not None else int(names[0][1])

    def close_listeners(self) -> None:
        """Take no new connection; idle ones are closed, busy ones after their answer."""
        self.draining = True
        for server in self._servers:
            server.close()
        for connection in [*self.connections]:
            connection.close_if_idle()

    async def close(self) -> None:
        """Break off what is still there."""
        self.close_listeners()
        if self._ticker is not None:
            self._ticker.cancel()
        tasks = [c.task for c in self.connections if c.task is not None]
        for connection in [*self.connections]:
            connection.abort()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK)
            now = time.monotonic()
            for connection in [*self.connections]:
                connection.look_at_clock(now)


class Connection(asyncio.Protocol):
    """One client. Its requests are answered one after the other, in order."""

    def __init__(self, listener: Listener) -> None:
        self.listener = listener
        self.task: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._address = ""
        self._parser: Any = httptools.HttpRequestParser(self)
        self._parsed: deque[Request | RefusedError] = deque()
        self._outlet: ClientOutlet | None = None
        self._writable: asyncio.Event | None = None
        self._stalled_since: float | None = None
        self._since = time.monotonic()
        self._phase = "idle"
        self._closing = False
        self._paused = False
        self._clear()

    # asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast("asyncio.Transport", transport)  # uvloop has a class of its own
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self._address = str(peer[0]) if isinstance(peer, tuple) and peer else "local"
        transport.set_write_buffer_limits(high=_WRITE_HIGH)
        connections = self.listener.connections
        if len(connections) >= self.listener.limits.max_connections:
            transport.abort()
            return
        connections.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._closing = True
        self.listener.connections.discard(self)
        self._parsed.clear()
        if self.task is not None:
            self.task.cancel()
        if self._writable is not None:
            self._writable.set()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._writable = asyncio.Event()
        self._stalled_since = time.monotonic()

    def resume_writing(self) -> None:
        if self._writable is not None:
            self._writable.set()
        self._writable = None
        self._stalled_since = None

    def data_received(self, data: bytes) -> None:
        if self._closing:
            return
        if self._phase == "idle":
            self._phase, self._since = "head", time.monotonic()
        elif self._phase == "body":
            self._since = time.monotonic()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._bad(RefusedError(400, "this server changes to no other protocol"))
        except RefusedError as refused:
            self._bad(refused)
        except httptools.HttpParserCallbackError as error:
            cause = error.__context__
            known = (
                cause if isinstance(cause, RefusedError) else RefusedError(400, "not understood")
            )
            self._bad(known)
        except httptools.HttpParserError:
            self._bad(RefusedError(400, "this is not HTTP/1.1 as the standard has it"))

    # the parser

    def _clear(self) -> None:
        self._url = bytearray()
        self._headers: list[tuple[bytes, bytes]] = []
        self._head_size = 0
        self._body: list[bytes] = []
        self._body_size = 0
        self._refused: RefusedError | None = None
        self._trailers = False

    def on_message_begin(self) -> None:
        self._clear()

    def on_url(self, data: bytes) -> None:
        self._url += data
        if len(self._url) > _TARGET:
            raise RefusedError(414, f"the address is longer than {_TARGET} bytes")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_size += len(name) + len(value) + 4
        if self._head_size > self.listener.limits.max_header:
            raise RefusedError(
                431, f"the head is longer than {self.listener.limits.max_header} bytes"
            )
        if not self._trailers:
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._trailers = True
        method = self._parser.get_method().decode()
        self._check_framing()
        path = bytes(self._url).partition(b"?")[0].decode("latin-1")
        length = next((v for k, v in self._headers if k == b"content-length"), b"0")
        if int(length) > self.listener.limits.max_body:
            raise self._too_large()
        headers = tuple(self._headers)
        self._refused = self.listener.gatekeeper.admit(method, path, headers)
        self._phase, self._since = "body", time.monotonic()
        if self._refused is not None and length != b"0":
            raise self._refused  # its body is not read
        if b"100-continue" in listed(self._headers, b"expect"):
            self._continue()

    def _check_framing(self) -> None:
        """Refuse what another parser could take for two requests, or for another one."""
        names = [name for name, _ in self._headers]
        encoded = [v.strip().lower() for k, v in self._headers if k == b"transfer-encoding"]
        lengths = [v for k, v in self._headers if k == b"content-length"]
        if encoded and (encoded != [b"chunked"] or lengths):
            raise RefusedError(
                400, "the length of the body is said in two ways, or in an unknown one"
            )
        if len(lengths) > 1 or any(not v.isdigit() or len(v) > 18 for v in lengths):
            raise RefusedError(400, "the length of the body is not one number")
        version = self._parser.get_http_version()
        if names.count(b"host") > 1 or (version == "1.1" and b"host" not in names):
            raise RefusedError(400, "there must be one Host header")
        if version not in {"1.0", "1.1"}:
            raise RefusedError(505, "this server speaks HTTP/1.0 and HTTP/1.1")
        if version == "1.0" and encoded:
            raise RefusedError(400, "HTTP/1.0 has no chunks")
        expected = listed(self._headers, b"expect")
        if expected - {b"100-continue"}:
            raise RefusedError(417, "this server expects 100-continue at most")
        if not self._url.startswith(b"/") and bytes(self._url) != b"*":
            raise RefusedError(400, "an address begins with / here")
        if any(byte <= 32 or byte == 127 for byte in self._url):
            raise RefusedError(400, "the address has a character that no address has")
        if any(b"\0" in v or b"\r" in v or b"\n" in v for _, v in self._headers):
            raise RefusedError(400, "a header goes over several lines")

    def _too_large(self) -> RefusedError:
        most = self.listener.limits.max_body
        return RefusedError(413, f"the body is longer than {most} bytes, which --max-body allows")

    def _continue(self) -> None:
        if self._transport is not None and not self._parsed and self.task is None:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, data: bytes) -> None:
        self._body_size += len(data)
        if self._body_size > self.listener.limits.max_body:
            raise self._too_large()
        self._body.append(data)

    def on_message_complete(self) -> None:
        refused, self._refused = self._refused, None
        if refused is not None:
            self._parsed.append(refused)
        else:
            headers = tuple(self._headers)
            self._parsed.append(
                Request(
                    method=self._parser.get_method().decode(),
                    target=bytes(self._url),
                    path=bytes(self._url).partition(b"?")[0].decode("latin-1"),
                    headers=from_client(headers),
                    body=b"".join(self._body),
                    client=self.listener.gatekeeper.client_of(headers, self._address),
                    keep_alive=self._parser.should_keep_alive(),
                    http10=self._parser.get_http_version() == "1.0",
                )
            )
        self._body = []
        self._phase = "idle"
        if len(self._parsed) > _PIPELINED and self._transport is not None and not self._paused:
            self._paused = True
            self._transport.pause_reading()
        if self.task is None:
            self._next()

    # answering

    def _next(self) -> None:
        """Answer the next request, if there is one and the connection is still good."""
        self.task = None
        if self._closing or self._transport is None:
            return
        if self._paused and len(self._parsed) < _PIPELINED:
            self._paused = False
            self._transport.resume_reading()
        if not self._parsed:
            self._since = time.monotonic()
            if self.listener.draining and self._phase == "idle":
                self._close()
            return
        request = self._parsed.popleft()
        if isinstance(request, RefusedError):
            self._answer_refusal(request)
            return
        self._outlet = ClientOutlet(self, self._transport, request)
        self.task = asyncio.create_task(self._answer(request, self._outlet))

    async def _answer(self, request: Request, outlet: ClientOutlet) -> None:
        try:
            await self.listener.handler(request, outlet)
        except asyncio.CancelledError:
            outlet.cut()
            raise
        except Exception:
            outlet.cut()
            raise
        else:
            if not outlet.ended:
                outlet.cut()
        finally:
            self._outlet = None
            if not outlet.keeps:
                self._close()
            self._next()

    def _answer_refusal(self, refused: RefusedError) -> None:
        """A refusal whose request was read whole; the connection goes on."""
        self.listener.refused()
        self._write_refusal(refused, close=False)
        self._next()

    def _bad(self, refused: RefusedError) -> None:
        """Answer what could not be read, and close: where the next request begins is not known."""
        self.listener.refused()
        if self.task is None and not self._parsed:
            self._write_refusal(refused, close=True)
            self._close()
        else:
            self.abort()

    def _write_refusal(self, refused: RefusedError, *, close: bool) -> None:
        path = bytes(self._url).partition(b"?")[0].decode("latin-1")
        if refused.body is None:
            headers, body = self.listener.gatekeeper.error(path, refused.status, refused.message)
        else:
            headers, body = (), refused.body
        extra = self.listener.gatekeeper.answer_headers(path, tuple(self._headers))
        head = head_of_answer(
            refused.status, (*refused.headers, *headers, *extra), length=len(body), close=close
        )
        if self._transport is not None:
            self._transport.write(head + body)

    # ending

    def look_at_clock(self, now: float) -> None:
        """End what takes too long."""
        limits = self.listener.limits
        waited = now - self._since
        stalled = self._stalled_since
        if stalled is not None and now - stalled > limits.write_timeout:
            self.abort()
        elif self._phase == "head" and waited > limits.header_timeout:
            self._bad(RefusedError(408, "the head of the request did not come in time"))
        elif self._phase == "body" and waited > limits.body_timeout:
            self._bad(RefusedError(408, "the body of the request did not come in time"))
        elif self._phase == "idle" and self.task is None and waited > limits.idle_timeout:
            self._close()

    def close_if_idle(self) -> None:
        if self.task is None and not self._parsed and self._phase == "idle":
            self._close()

    def _close(self) -> None:
        self._closing = True
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        self._closing = True
        if self._transport is not None:
            self._transport.abort()

    async def room(self) -> None:
        if self._writable is not None:
            await self._writable.wait()


class ClientOutlet:
    """Implements :class:`arriero.serve.http.interface.Outlet` for one request of a connection."""

    def __init__(
        self, connection: Connection, transport: asyncio.Transport, request: Request
    ) -> None:
        self.begun = False
        self.ended = False
        self.keeps = request.keep_alive and not connection.listener.draining
        self._connection = connection
        self._transport = transport
        self._request = request
        self._chunked = False
        self._silent = request.method == "HEAD"

    def begin(
        self, status: int, headers: Sequence[tuple[bytes, bytes]], length: int | None
    ) -> None:
        """See :class:`Outlet`."""
        self.begun = True
        bodiless = self._silent or status in {204, 304}
        if length is None and self._request.http10 and not bodiless:
            self.keeps = False
        self._chunked = length is None and not bodiless and not self._request.http10
        self._silent = bodiless
        gatekeeper = self._connection.listener.gatekeeper
        extra = gatekeeper.answer_headers(self._request.path, self._request.headers)
        self._transport.write(
            head_of_answer(
                status,
                (*headers, *extra),
                length=length if status not in {204, 304} else None,
                close=not self.keeps,
                chunked=self._chunked,
            )
        )

    def write(self, data: bytes) -> None:
        """See :class:`Outlet`."""
        if not data or self._silent:
            return
        if self._chunked:
            self._transport.write(b"%x\r\n%b\r\n" % (len(data), data))
        else:
            self._transport.write(data)

    async def room(self) -> None:
        """See :class:`Outlet`."""
        await self._connection.room()

    def end(self) -> None:
        """See :class:`Outlet`."""
        self.ended = True
        if self._chunked:
            self._transport.write(b"0\r\n\r\n")

    def cut(self) -> None:
        """See :class:`Outlet`."""
        if not self.ended:
            self.keeps = False
            self.ended = True
            with contextlib.suppress(RuntimeError):
                self._transport.abort()
