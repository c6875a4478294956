"""One connection of a client: its requests are answered one after the other, in order."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Final, Protocol, cast

from arriero.serve.http.headers import head_of_answer
from arriero.serve.http.interface import Handler, Headers, Request
from arriero.serve.http.outlet import ClientOutlet
from arriero.serve.http.reading import Phase, Reader
from arriero.serve.http.refused import RefusedError
from arriero.serve.http.rules import Gatekeeper, Held, Limits

_PIPELINED: Final = 16
"""Requests that may wait behind one on the same connection before it is not read any more."""
_AHEAD: Final = 1 << 20
"""Bytes of bodies that may wait there."""
_WRITE_HIGH: Final = 1 << 18
"""Bytes that a client has not taken before its answer waits."""
_TAKEN: Final = 1 << 14
"""Bytes that a client must take within the setting ``write-timeout``."""
_LINGER: Final = 2.0
"""Seconds in which a refused client may read why, while what it still sends is thrown away."""


class House(Protocol):
    """What a connection needs of the listener."""

    @property
    def limits(self) -> Limits: ...
    @property
    def gatekeeper(self) -> Gatekeeper: ...
    @property
    def handler(self) -> Handler: ...
    @property
    def held(self) -> Held: ...
    @property
    def draining(self) -> bool: ...

    def enters(self, connection: Connection) -> bool:
        """Whether there is room for it."""

    def leaves(self, connection: Connection) -> None: ...

    def refuses(self) -> None:
        """A request was answered here."""


class Connection(asyncio.Protocol):
    """Implements :class:`arriero.serve.http.outlet.Line`, too."""

    def __init__(self, house: House) -> None:
        self.task: asyncio.Task[None] | None = None
        self._house = house
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._reader: Reader | None = None
        self._waiting: deque[Request | RefusedError] = deque()
        self._ahead = 0
        self._writable: asyncio.Future[None] | None = None
        self._stalled_since: float | None = None
        self._stalled_at = 0
        self._lingers = False
        self._ended_since: float | None = None
        self._paused = False

    # --- asyncio ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's does not inherit from it
        if not self._house.enters(self):
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(high=_WRITE_HIGH)
        peer = transport.get_extra_info("peername")
        address = str(peer[0]) if isinstance(peer, tuple) and peer else "local"
        house = self._house
        self._reader = Reader(house.limits, house.gatekeeper, house.held, address, self._take)

    def connection_lost(self, error: Exception | None) -> None:
        self._ended_since = self._ended_since or time.monotonic()
        self._transport = None
        self._house.leaves(self)
        if self._reader is not None:
            self._reader.deaf = True
            self._reader.drop()
        for request in self._waiting:
            self._give_back(request)
        self._waiting.clear()
        if self.task is not None:
            self.task.cancel()
        self.resume_writing()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._writable = self._loop.create_future()
        self._stalled_since = time.monotonic()
        self._stalled_at = 0 if self._transport is None else self._transport.get_write_buffer_size()

    def resume_writing(self) -> None:
        writable, self._writable = self._writable, None
        self._stalled_since = None
        if writable is not None and not writable.done():
            writable.set_result(None)

    def data_received(self, data: bytes) -> None:
        reader = self._reader
        if reader is None or reader.deaf or self._ended_since is not None:
            return
        try:
            reader.feed(data)
        except RefusedError as refused:
            self._give_up(refused)
            return
        self._look_ahead()

    # --- requests ---

    def _take(self, request: Request | RefusedError) -> None:
        self._waiting.append(request)
        if isinstance(request, Request):
            self._ahead += len(request.body)
        if self.task is None and len(self._waiting) == 1:
            self._next()

    def _give_up(self, refused: RefusedError) -> None:
        """Answer what came before, then this, then nothing."""
        if self._reader is not None:
            self._reader.deaf = True
            self._reader.drop()
        refused.final = True
        self._take(refused)

    def _look_ahead(self) -> None:
        """Stop reading while many wait; tell a client to go on that asked whether it may."""
        reader, transport = self._reader, self._transport
        if reader is None or transport is None:
            return
        if self.task is None:
            if reader.owes_continue:
                reader.owes_continue = False
                self.send(b"HTTP/1.1 100 Continue\r\n\r\n")
            return
        ahead = self._ahead + reader.held_bytes
        if not self._paused and (len(self._waiting) > _PIPELINED or ahead > _AHEAD):
            self._paused = True
            transport.pause_reading()

    def _next(self) -> None:
        """Answer the next request, if there is one and the connection is still good."""
        self.task = None
        while self._waiting and self._ended_since is None:
            request = self._waiting.popleft()
            if isinstance(request, Request):
                self._ahead -= len(request.body)
                self.task = self._loop.create_task(self._answer(request))
                break
            self._answer_refusal(request)
        if self._paused and len(self._waiting) <= _PIPELINED and self._transport is not None:
            self._paused = False
            if self._reader is not None:
                self._reader.start_clock()
            self._transport.resume_reading()
        if self.task is None and self._ended_since is None and self._reader is not None:
            if self._reader.phase is Phase.IDLE:
                self._reader.start_clock()
                if self._house.draining:
                    self._close()
            self._look_ahead()

    async def _answer(self, request: Request) -> None:
        outlet = ClientOutlet(self, request)
        try:
            await self._house.handler(request, outlet)
        except BaseException as error:
            if isinstance(error, Exception) and not outlet.begun:
                self._excuse(request, outlet)
            outlet.cut()
            raise
        finally:
            if not outlet.ended:
                outlet.cut()
            self._give_back(request)
            if not outlet.keeps:
                self._close()
            self._next()

    def _excuse(self, request: Request, outlet: ClientOutlet) -> None:
        headers, body = self._house.gatekeeper.error(request.path, 500, "an error of this server")
        outlet.begin(500, headers, len(body))
        outlet.write(body)
        outlet.end()

    def _give_back(self, request: Request | RefusedError) -> None:
        if isinstance(request, Request):
            self._house.held.bytes -= len(request.body)

    def _answer_refusal(self, refused: RefusedError) -> None:
        self._house.refuses()
        reader, keeper = self._reader, self._house.gatekeeper
        if reader is None:
            return
        path = reader.target.partition(b"?")[0].decode("latin-1")
        if refused.body is None:
            headers, body = keeper.error(path, refused.status, refused.message)
        else:
            headers, body = (), refused.body
        close = refused.final or self._house.draining
        more = (*refused.headers, *headers, *keeper.answer_headers(path, reader.headers))
        bodiless = refused.status == 204
        length = None if bodiless else len(body)
        self.send(head_of_answer(refused.status, more, length=length, close=close) + body)
        if close:
            self._linger()

    # --- how an answer sees it ---

    @property
    def draining(self) -> bool:
        """See :class:`Line`."""
        return self._house.draining

    def send(self, data: bytes) -> None:
        """See :class:`Line`."""
        if self._transport is not None:
            self._transport.write(data)

    async def room(self) -> None:
        """See :class:`Line`."""
        if self._writable is not None:
            await self._writable

    def answer_headers(self, path: str, headers: Headers) -> Headers:
        """See :class:`Line`."""
        return self._house.gatekeeper.answer_headers(path, headers)

    def soon(self, outlet: ClientOutlet) -> None:
        """See :class:`Line`."""
        self._loop.call_soon(outlet.flush)

    # --- the end ---

    @property
    def idle_since(self) -> float | None:
        """Since when it has asked nothing; None while it does."""
        reader = self._reader
        if reader is None or self.task is not None or self._ended_since is not None:
            return None
        idle = reader.phase in (Phase.IDLE, Phase.FRESH)
        return time.monotonic() - reader.idle_for(time.monotonic()) if idle else None

    def look_at_clock(self, now: float) -> None:
        """End what takes too long."""
        limits, reader = self._house.limits, self._reader
        if reader is None or self._takes_nothing(now):
            self.abort()
            return
        if self._ended_since is not None:
            if self._lingers and now - self._ended_since > _LINGER:
                self.abort()
            return
        if reader.deaf or self._paused:
            return
        late = reader.late(now)
        if late is not None:
            self._give_up(late)
        elif self.task is None:
            fresh = reader.phase is Phase.FRESH
            idle = fresh or reader.phase is Phase.IDLE
            if idle and reader.idle_for(now) > (
                limits.header_timeout if fresh else limits.idle_timeout
            ):
                self._close()

    def _takes_nothing(self, now: float) -> bool:
        """Whether the client has not taken enough of its answer for too long."""
        transport = self._transport
        if transport is None:
            return False
        left = transport.get_write_buffer_size()
        since = self._stalled_since
        if since is None and self._ended_since is not None and left:
            since = self._stalled_since = self._ended_since
            self._stalled_at = left
        if since is None:
            return False
        if left <= self._stalled_at - _TAKEN:
            self._stalled_since, self._stalled_at = now, left
            return False
        return now - since > self._house.limits.write_timeout

    def close_if_idle(self) -> None:
        """Close it unless it is in the middle of something."""
        if self.idle_since is not None:
            self._close()

    def _linger(self) -> None:
        """Say that nothing more comes, and let the client read that before it is cut off."""
        transport = self._transport
        if self._ended_since is not None or transport is None:
            return
        self._ended_since = time.monotonic()
        self._lingers = True
        if self._reader is not None:
            self._reader.deaf = True
        if self._paused:
            self._paused = False
            transport.resume_reading()
        if transport.can_write_eof():
            transport.write_eof()
        else:
            transport.close()

    def _close(self) -> None:
        if self._ended_since is None:
            self._ended_since = time.monotonic()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Break it off."""
        self._ended_since = self._ended_since or time.monotonic()
        if self._transport is not None:
            self._transport.abort()
