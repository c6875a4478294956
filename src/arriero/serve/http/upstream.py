"""Connections to one start of the engine: kept for the next request where that is safe.

llama-server announces ``Keep-Alive: timeout=5, max=100`` and closes a connection that carried a
stream of events whatever it announced (builds 10068 and 10434). So a connection is used again only
after an answer of known length, well within that time and count: then the engine cannot be closing
it just when a request is sent, and no request runs twice for that reason.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Any, Final, cast

import httptools

from arriero.serve.http.headers import for_client, for_engine
from arriero.serve.http.interface import Address, Headers, UpstreamLostError

_IDLE_SECONDS: Final = 2.0
_USES: Final = 90
_KEPT: Final = 64
_BUFFERED: Final = 1 << 16
"""Bytes of an answer that wait to be read before the engine is held back."""
_HEAD: Final = 1 << 16


class EngineCall:
    """Implements :class:`arriero.serve.http.interface.Call`."""

    def __init__(self, connection: _Connection) -> None:
        self.status = 0
        self.headers: Headers = ()
        self.head: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.ended = False
        self._connection: _Connection | None = connection
        self._pieces: deque[bytes] = deque()
        self._waiting = 0
        self._error: UpstreamLostError | None = None
        self._reader: asyncio.Future[None] | None = None

    async def read(self) -> bytes:
        """See :class:`Call`."""
        if not self._pieces and not self.ended and self._error is None:
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        if self._pieces:
            found = self._pieces.popleft() if len(self._pieces) == 1 else b"".join(self._pieces)
            self._pieces.clear()
            self._waiting = 0
            if self._connection is not None:
                self._connection.resume()
            return found
        if self._error is not None:
            raise self._error
        return b""

    def close(self) -> None:
        """See :class:`Call`."""
        connection, self._connection = self._connection, None
        if connection is not None and not self.ended:
            connection.abort()

    # what the connection tells

    def take(self, data: bytes) -> bool:
        """A piece of the body; whether it is time to hold the engine back."""
        self._pieces.append(data)
        self._waiting += len(data)
        self._wake()
        return self._waiting > _BUFFERED

    def end(self) -> None:
        self.ended = True
        self._connection = None
        self._wake()

    def lose(self, error: UpstreamLostError) -> None:
        self._error = error
        self._connection = None
        if not self.head.done():
            self.head.set_exception(error)
        self._wake()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)


class _Connection(asyncio.Protocol):
    """One connection. It has one call at a time."""

    def __init__(self, pool: Pool) -> None:
        self.idle_since = 0.0
        self.uses = 0
        self.closing = False
        self._pool = pool
        self._transport: asyncio.Transport | None = None
        self._parser: Any = None
        self._call: EngineCall | None = None
        self._headers: list[tuple[bytes, bytes]] = []
        self._size = 0
        self._bodiless = False
        self._keep = False
        self._paused = False

    def start(self, head: bytes, body: bytes, *, bodiless: bool) -> EngineCall:
        """Write a request; its answer comes through the call."""
        transport = self._transport
        assert transport is not None  # noqa: S101 - connected before it is used
        self._call = call = EngineCall(self)
        self._parser = httptools.HttpResponseParser(self)
        self._headers, self._size, self._bodiless = [], 0, bodiless
        self.uses += 1
        if len(body) < _HEAD:
            transport.write(head + body)
        else:
            transport.write(head)
            transport.write(body)
        return call

    @property
    def written(self) -> bool:
        """Whether everything was handed to the system."""
        return self._transport is not None and not self._transport.get_write_buffer_size()

    def resume(self) -> None:
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()

    def abort(self) -> None:
        self.closing = True
        self._call = None
        if self._transport is not None:
            self._transport.abort()

    # asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast("asyncio.Transport", transport)  # uvloop has a class of its own
        self._transport = transport
        self._pool.add(self)

    def data_received(self, data: bytes) -> None:
        if self._call is None:
            self.abort()  # nobody asked
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._lose(f"its answer is no HTTP ({type(error).__name__})")

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self.closing = True
        self._pool.forget(self)
        call = self._call
        if call is not None and call.head.done() and error is None and not self._framed():
            self._call = None
            call.end()  # an answer that ends with its connection
            return
        self._lose(str(error) if error else "it closed the connection")

    def _framed(self) -> bool:
        return any(name in {b"content-length", b"transfer-encoding"} for name, _ in self._headers)

    def _lose(self, reason: str) -> None:
        call, self._call = self._call, None
        sent = self.written or self.closing
        if call is not None:
            call.lose(UpstreamLostError(reason, sent=sent))
        if not self.closing:
            self.abort()

    # httptools

    def on_header(self, name: bytes, value: bytes) -> None:
        self._size += len(name) + len(value)
        if self._size > _HEAD:
            raise ValueError("a head that long is none of llama-server's")
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        call, status = self._call, self._parser.get_status_code()
        if call is None or status < 200:
            return
        call.status, call.headers = status, for_client(self._headers)
        self._keep = self._parser.should_keep_alive() and any(
            name == b"content-length" for name, _ in self._headers
        )
        if not call.head.done():
            call.head.set_result(None)

    def on_body(self, data: bytes) -> None:
        if self._call is not None and self._call.take(data) and not self._paused:
            assert self._transport is not None  # noqa: S101 - it brought the data
            self._paused = True
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        call = self._call
        if call is None or not call.head.done():
            self._headers = []  # 100 Continue
            return
        self._call = None
        call.end()
        self.resume()
        if self._keep and self.uses < _USES:
            self._pool.keep(self)
        else:
            self.abort_gently()
            self._pool.open_ahead()

    def abort_gently(self) -> None:
        """Close it once it is idle."""
        self.closing = True
        if self._transport is not None:
            self._transport.close()

    def break_off(self, reason: str) -> None:
        """End it, whatever it is doing."""
        self._lose(reason)


class Pool:
    """Implements :class:`arriero.serve.http.interface.Upstream` for one address."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._idle: list[_Connection] = []
        self._all: set[_Connection] = set()
        self._closed = False
        self._ahead: asyncio.Task[None] | None = None

    async def send(
        self,
        method: str,
        target: bytes,
        headers: Headers,
        body: bytes,
        *,
        timeout: float | None = None,
    ) -> EngineCall:
        """See :class:`Upstream`."""
        connection = self._take() or await self._open()
        head = for_engine(method, target, headers, len(body), self._address.key)
        call = connection.start(head, body, bodiless=method == "HEAD")
        try:
            if timeout is None:
                await call.head
            else:
                async with asyncio.timeout(timeout):
                    await call.head
        except (asyncio.CancelledError, TimeoutError):
            call.close()
            raise
        if method == "HEAD" and not call.ended:
            connection.abort()
            call.end()
        return call

    async def _open(self) -> _Connection:
        if self._closed:
            raise UpstreamLostError("this start of the engine has ended", sent=False)
        loop, address = asyncio.get_running_loop(), self._address
        try:
            if address.socket is not None:
                _, made = await loop.create_unix_connection(
                    lambda: _Connection(self), str(address.socket)
                )
            else:
                _, made = await loop.create_connection(
                    lambda: _Connection(self), "127.0.0.1", address.port
                )
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise UpstreamLostError(f"no connection: {reason}", sent=False) from None
        return made

    def _take(self) -> _Connection | None:
        oldest = time.monotonic() - _IDLE_SECONDS
        while self._idle:
            found = self._idle.pop()
            if not found.closing and found.idle_since > oldest:
                return found
            found.abort_gently()
        return None

    def keep(self, connection: _Connection) -> None:
        if self._closed or len(self._idle) >= _KEPT:
            connection.abort_gently()
            return
        connection.idle_since = time.monotonic()
        self._idle.append(connection)

    def open_ahead(self) -> None:
        """Open a connection for the next request: the last one ended with a stream.

        One at most: each takes a thread of the engine.
        """
        if not self._closed and not self._idle and self._ahead is None:
            self._ahead = asyncio.get_running_loop().create_task(self._open_ahead())

    async def _open_ahead(self) -> None:
        try:
            self.keep(await self._open())
        except UpstreamLostError:
            pass  # the next request finds that out
        finally:
            self._ahead = None

    def add(self, connection: _Connection) -> None:
        self._all.add(connection)

    def forget(self, connection: _Connection) -> None:
        self._all.discard(connection)

    def close(self) -> None:
        """See :class:`Upstream`."""
        self._closed = True
        self._idle.clear()
        if self._ahead is not None:
            self._ahead.cancel()
        for connection in [*self._all]:
            connection.break_off("this start of the engine has ended")
