"""One request's life: it waits, is sent and answered; is sent again or continued if need be."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import msgspec

from arriero.serve.apis import registry
from arriero.serve.apis.interface import (
    CONTINUED,
    WAITING,
    Answer,
    ApiError,
    Asked,
    Continue,
    Defaults,
)
from arriero.serve.http.interface import Call, Headers, Outlet, Request, UpstreamLostError
from arriero.serve.refusals import Fault, is_crowded, refusal_of
from arriero.serve.requests.ledger import Ledger, Outcome, Phase, Ticket
from arriero.serve.requests.lobby import FullError, Lobby
from arriero.serve.supervisor.interface import Engine, GaveUpError, Live, State

WHOLE: Final = 8 << 20
"""Bytes of an answer that are collected before any of it is passed on, so that it can be asked for
again. A longer one is passed on as it comes."""
_BAD: Final = 1 << 20
_EVENTS: Final = ((b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache"))
_POISON: Final = 3
"""Crashes of the engine with nothing but this request in work: then it is not sent again."""
_CROWDED: Final = 3
_BROKEN: Final = 5
"""Connections that may break for one request although the engine lives."""
_LOOK: Final = 0.5
_OFTEN: Final = 0.05
_TELL: Final = 2.0
"""Seconds to tell the client of a request that is stopped."""
_LOADING: Final = 503
_NOT_DONE: Final = 501
_AS_JSON: Final = ((b"content-type", b"application/json"),)
STOPPING: Final = "this server is stopping: ask again soon"
_T = TypeVar("_T")


class HeldTooLongError(Exception):
    """The engine did not come back within the hold limit."""


class RetryError(Exception):
    """The request must be sent again."""


@dataclass
class Rules:
    """What a server's settings say of requests; can change while it runs."""

    hold: float = 600.0
    comment: float = 5.0
    continue_: Continue = Continue.GREEDY
    prefix: str = ""
    defaults: Callable[[], Defaults] = Defaults
    heard: Callable[[bytes], None] | None = None
    """Hears each piece of an answer, while a restored context waits to be proved."""
    became: Callable[[str, str], None] | None = None
    """Hears what became of a request that the engine had at an incident: its ID, and ``replayed``,
    ``continued`` or ``error_events``."""
    draining: bool = False


@dataclass
class Desk:
    """What all requests to one engine share."""

    engine: Engine
    rules: Rules
    ledger: Ledger
    lobby: Lobby
    _exchanges: set[Exchange] = field(default_factory=set)

    async def answer(self, request: Request, outlet: Outlet) -> None:
        """Answer one request. Cancelled when its client goes."""
        ticket = self.ledger.receive()
        exchange = Exchange(self, request, outlet, ticket)
        self._exchanges.add(exchange)
        try:
            await exchange.run()
        except asyncio.CancelledError:
            ticket.end(Outcome.CANCELLED)
            raise
        finally:
            self._exchanges.discard(exchange)
            ticket.end(Outcome.LOST)  # unless it has ended in another way

    async def stop(self) -> None:
        """Tell all requests that are left that there will be no answer; back when they know."""
        self.rules.draining = True
        left = [one.stop() for one in [*self._exchanges]]
        await asyncio.gather(*left, return_exceptions=True)


@dataclass(eq=False)
class Exchange:
    """See the module. ``docs/decisions/0007`` has its states and what is promised in each."""

    desk: Desk
    request: Request
    outlet: Outlet
    ticket: Ticket
    tries: int = 0
    """How often it was sent again from its beginning."""
    continued: int = 0
    lonely_crashes: int = 0
    crowded: int = 0
    suspect: bool = False
    held_for: float = 0.0
    _incident: str | None = None
    """At which the engine was lost while it had this; None once it is told what became of it."""
    asked: Asked = field(init=False)
    _read_with: Defaults = field(init=False)
    _next: Request | None = None
    _commented: float = 0.0
    _task: asyncio.Task[None] | None = None
    _stopped: bool = False
    passed: bool = False
    """Its client has a part of an answer that nobody here understands."""
    streams: bool = False
    """That is a stream of events."""
    broken: int = 0
    """Connections that broke while the engine went on."""

    def __post_init__(self) -> None:
        self._understand_request(self.desk.rules.defaults())

    def _understand_request(self, defaults: Defaults) -> None:
        self._read_with = defaults
        self.asked = registry.asked_of(self.request, defaults, self.desk.rules.continue_)

    # -- the life

    async def run(self) -> None:
        """Until the client has its answer, or knows that there will be none."""
        self._task = task = asyncio.current_task()
        try:
            await self._live()
        except asyncio.CancelledError:
            if not self._stopped or task is None:
                raise
            task.uncancel()
            await self._refuse(503, STOPPING, retry=5)

    async def stop(self) -> None:
        """The server stops before this has its answer: its client is told so."""
        task = self._task
        if task is not None and not self._stopped and self.ticket.outcome is None:
            self._stopped = True
            task.cancel()
            await asyncio.wait({task}, timeout=_TELL)

    async def _live(self) -> None:
        if self.desk.rules.draining:
            await self._refuse(503, STOPPING, retry=5)
            return
        try:
            while True:
                try:
                    await self._try()
                except RetryError:
                    self.ticket.move(Phase.HELD)
                    self.ticket.note("held")
                else:
                    return
        except HeldTooLongError:
            await self._refuse(503, "the engine is still not back: ask again later", retry=30)
        except FullError:
            await self._refuse(503, "too many requests wait already: ask again later", retry=10)
        except GaveUpError as error:
            await self._refuse(503, f"the engine is not started again: {error}", retry=60)
        except ApiError as error:
            await self._break_off(f"the rest of this answer could not be asked for: {error}")

    async def _try(self) -> None:
        """One start of the engine answers it.

        Raises:
            RetryError: That was not the end of it.
        """
        works, lobby, engine = self.asked.works, self.desk.lobby, self.desk.engine
        again = self.ticket.phase is Phase.HELD
        if not again:
            self.ticket.move(Phase.WAITING)
        if works and not lobby.enter_now(alone=self.suspect):
            await self._wait(lobby.enter(self.request.client, alone=self.suspect, again=again))
        try:
            live = engine.live
            if live is None:
                live = await self._wait(engine.serving())
            lobby.set_room(live.n_slots)
            await self._send(live)
        finally:
            if works:
                lobby.leave()

    async def _wait(self, wanted: Coroutine[Any, Any, _T]) -> _T:
        """Wait for a turn or an engine; tell a client that waits for a stream that it does.

        Only time in which no engine answers counts as held.

        Raises:
            HeldTooLongError: It was held too long.
        """
        task = asyncio.get_running_loop().create_task(wanted)
        try:
            while True:
                began = time.monotonic()
                done, _ = await asyncio.wait({task}, timeout=self._look())
                if done:
                    return task.result()
                if self.desk.engine.state is State.READY:
                    continue
                self.ticket.note("held")
                self.held_for += time.monotonic() - began
                if self.held_for >= self.desk.rules.hold:
                    raise HeldTooLongError
                await self._comment()
        finally:
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    def _look(self) -> float:
        """Seconds until there is something to do for one that waits."""
        rules = self.desk.rules
        left = max(rules.hold - self.held_for, 0.0)
        return min(_LOOK, left, max(rules.comment, _OFTEN))

    async def _comment(self) -> None:
        if self.asked.streams and self.held_for - self._commented >= self.desk.rules.comment:
            self._commented = self.held_for
            self._begin_stream()
            self.outlet.write(WAITING)
            await self.outlet.room()

    async def _send(self, live: Live) -> None:
        """Give the engine the request, or ask it for the rest of the answer."""
        if live.defaults != self._read_with and self.ticket.phase is Phase.WAITING:
            self._understand_request(live.defaults)  # it came before the engine had told them
        answer, handed = self.asked.answer, False
        try:
            if answer is not None and answer.sent:
                await self._ask_for_rest(live, answer)
            request, self._next = self._next or self.asked.inside, None
            self.ticket.move(Phase.SENT)
            handed = True
            call = await live.upstream.send(
                request.method, request.target, request.headers, request.body
            )
            try:
                await self._receive(live, call)
            finally:
                call.close()
        except UpstreamLostError as error:
            await self._after_loss(live, str(error), handed=handed and error.sent)

    async def _ask_for_rest(self, live: Live, answer: Answer) -> None:
        async def ask(path: str, body: bytes) -> bytes:
            target = (self.desk.rules.prefix + path).encode()
            call = await live.upstream.send("POST", target, _AS_JSON, body)
            try:
                got = await _all_of(call, WHOLE)
            finally:
                call.close()
            if call.status != 200:
                raise ApiError(f"{path} answered {call.status}")
            return got

        self._next = await answer.rest(ask)
        self.continued += 1
        self.ticket.note("continued")
        if self.asked.streams:
            self._begin_stream()
            self.outlet.write(CONTINUED)

    # -- answers

    async def _receive(self, live: Live, call: Call) -> None:
        answer = self.asked.answer
        if call.status >= 500 and self.asked.works:
            await self._engine_error(live, call)
        elif answer is None or (call.status == 200 and not _is_stream(call.headers)):
            await self._pass_on(live, call)
        elif call.status != 200:
            body = await _all_of(call, _BAD)
            await self._finish(call.status, call.headers, body)
        else:
            await self._understand(live, call, answer)

    async def _understand(self, live: Live, call: Call, answer: Answer) -> None:
        """Pass a stream on, event by event, or collect an answer that is wanted whole."""
        streams, outlet, progressed = self.asked.streams, self.outlet, self.desk.engine.progressed
        self.ticket.move(Phase.ANSWERING)
        while piece := await call.read():
            progressed(live.generation)
            events = answer.feed(piece)
            if answer.failure is not None:
                await self._failed_inside(live, answer.failure)
                return
            if events and streams:
                if not outlet.begun:
                    self._begin_stream(call.headers)
                outlet.write(events)
                await outlet.room()
            self._heard(piece)
        if not answer.whole:
            raise UpstreamLostError("the answer ended before its end", sent=True)
        if streams:
            if not outlet.begun:
                self._begin_stream(call.headers)
            outlet.end()
        else:
            headers, body = answer.result()
            self._begin(200, headers, len(body))
            outlet.write(body)
            outlet.end()
        self.ticket.end(Outcome.ANSWERED)

    async def _failed_inside(self, live: Live, event: bytes) -> None:
        """An error event came instead of the rest of an answer; returns if it is the client's."""
        if is_crowded(event):
            if self.crowded < _CROWDED:
                await self._crowd()
                return
        elif await self.desk.engine.failed(live.generation, 500, event):
            await self._after_loss(live, "it answered with an error")
            return
        self._told_of(event)

    def _told_of(self, event: bytes) -> None:
        """Give the client an error of the engine as it came."""
        if self.asked.streams:
            self._begin_stream()
            self.outlet.write(event)
            self.outlet.end()
            self.ticket.end(Outcome.ERROR_EVENT)
        else:
            status, body = _error_in(event)
            self._whole(status, _AS_JSON, body, Outcome.ANSWERED)

    async def _crowd(self) -> None:
        """Requests in work together filled the cache: it goes again with nothing beside it.

        Raises:
            RetryError: It goes again.
        """
        self.crowded += 1
        self.suspect = True
        await self._again()

    async def _pass_on(self, live: Live, call: Call) -> None:
        """An answer of which nothing has to be understood.

        Up to a size it is collected first, so that it can be asked for again if the engine dies.
        """
        self.ticket.move(Phase.ANSWERING)
        events, length = _is_stream(call.headers), _length(call.headers)
        if self.request.method == "HEAD":
            self._begin(call.status, call.headers, length)
        elif events or (length is not None and length > WHOLE):
            self.streams = events
            if not self.outlet.begun:
                self._begin(call.status, call.headers, length)
            await self._passed(live, call)
        else:
            body, more = await self._collected(live, call)
            if not more:
                await self._finish(call.status, call.headers, body)
                return
            if self.outlet.begun:
                await self._break_off("the answer is no stream")
                return
            self._begin(call.status, call.headers, length)
            self.outlet.write(body)
            await self._passed(live, call)
        self.outlet.end()
        self.ticket.end(Outcome.ANSWERED)

    async def _passed(self, live: Live, call: Call) -> None:
        while piece := await call.read():
            self._progressed(live)
            self.passed = True
            self.outlet.write(piece)
            await self.outlet.room()

    def _progressed(self, live: Live) -> None:
        """Only of what needs a slot: an engine that hangs still says that it is healthy."""
        if self.asked.works:
            self.desk.engine.progressed(live.generation)

    async def _collected(self, live: Live, call: Call) -> tuple[bytes, bool]:
        """The body up to a size, and whether there is more of it."""
        pieces, size = [], 0
        while piece := await call.read():
            self._progressed(live)
            pieces.append(piece)
            size += len(piece)
            if size > WHOLE:
                return b"".join(pieces), True
        return b"".join(pieces), False

    async def _engine_error(self, live: Live, call: Call) -> None:
        """A 5xx to a request that works: the engine may be sick, or the request too much for it."""
        body = await _all_of(call, _BAD)
        refusal = refusal_of(call.status, body)
        if refusal is not None and refusal.fault is Fault.TOO_LONG:
            await self._finish(400, _AS_JSON, refusal.body())
        elif refusal is not None and self.crowded < _CROWDED:
            await self._crowd()
        elif call.status == _LOADING and b"oading model" in body:
            self.held_for += _LOOK  # it wakes from its sleep
            await asyncio.sleep(_LOOK)
            if self.held_for >= self.desk.rules.hold:
                raise HeldTooLongError
            raise RetryError
        elif (
            refusal is None
            and call.status != _NOT_DONE
            and await self.desk.engine.failed(live.generation, call.status, body)
        ):
            await self._after_loss(live, f"it answered {call.status}")
        else:
            await self._finish(call.status, call.headers, body)

    # -- losses

    async def _after_loss(self, live: Live, reason: str, *, handed: bool = True) -> None:
        """Find out what became of the engine; decide what becomes of the request.

        Args:
            handed: The engine can have begun with it.

        Raises:
            RetryError: It goes again.
        """
        alone = self.desk.lobby.in_work <= 1
        loss = await self.desk.engine.lost(live.generation, reason)
        self._incident = loss.incident
        if not handed:
            raise RetryError
        if loss.alive:
            self.broken += 1
            self.ticket.note("executed_twice")
            if self.broken >= _BROKEN:
                await self._break_off(f"the engine breaks its answer off: {reason}")
                return
        if loss.blames_requests and self.asked.works:
            self.suspect = True
            self.lonely_crashes += alone
        if self.lonely_crashes >= _POISON:
            self._became("error_events")
            await self._break_off(f"the engine ended {_POISON} times while it answered this alone")
            return
        await self._again()

    async def _again(self) -> None:
        """The request goes again, or is continued, unless its client has what cannot go on.

        Raises:
            RetryError: It goes again.
        """
        answer = self.asked.answer
        if answer is not None and answer.sent and answer.continuable:
            self._became("continued")
            raise RetryError
        if self.passed or (answer is not None and answer.sent and self.asked.streams):
            self._became("error_events")
            why_not = "" if answer is None else f": {self._why_not}"
            await self._break_off(f"the engine was lost while it answered{why_not}")
            return
        self.tries += 1
        self.ticket.note("replayed")
        self._became("replayed")
        self._understand_request(self._read_with)
        raise RetryError

    def _became(self, what: str) -> None:
        incident, self._incident = self._incident, None
        if incident is not None and self.desk.rules.became is not None:
            self.desk.rules.became(incident, what)

    @property
    def _why_not(self) -> str:
        return self.asked.why_not or "what was sent cannot be continued"

    # -- writing

    @property
    def _path(self) -> str:
        return self.request.path.removeprefix(self.desk.rules.prefix)

    def _notes(self) -> Headers:
        notes: Headers = ()
        if self.tries:
            notes += ((b"x-arriero-replayed", str(self.tries).encode()),)
        if self.continued:
            notes += ((b"x-arriero-continued", str(self.continued).encode()),)
        return notes

    def _begin(self, status: int, headers: Headers, length: int | None) -> None:
        self.outlet.begin(status, (*headers, *self._notes()), length)

    def _begin_stream(self, headers: Headers = _EVENTS) -> None:
        if not self.outlet.begun:
            self._begin(200, headers, None)

    def _heard(self, piece: bytes) -> None:
        if self.desk.rules.heard is not None:
            self.desk.rules.heard(piece)

    async def _finish(self, status: int, headers: Headers, body: bytes) -> None:
        """A whole answer of the engine, or, in a stream that has begun, an error in its form."""
        if self.outlet.begun:
            await self._break_off(registry.message_of(body) or f"the engine answered {status}")
            return
        self._whole(status, headers, body, Outcome.ANSWERED)
        self._heard(body)

    def _whole(self, status: int, headers: Headers, body: bytes, outcome: Outcome) -> None:
        self._begin(status, headers, len(body))
        self.outlet.write(body)
        self.outlet.end()
        self.ticket.end(outcome)

    async def _refuse(self, status: int, message: str, *, retry: int) -> None:
        await self._fail(status, message, ((b"retry-after", str(retry).encode()),))

    async def _fail(self, status: int, message: str, more: Headers = ()) -> None:
        if self.outlet.begun:
            await self._break_off(message)
            return
        headers, body = registry.error_body(self._path, status, message, "server_error")
        outcome = Outcome.REFUSED if status == 503 else Outcome.ERROR_EVENT
        self._whole(status, (*headers, *more), body, outcome)

    async def _break_off(self, message: str) -> None:
        """End an answer that has begun as its API ends one that fails."""
        if not self.outlet.begun:
            await self._fail(500, message)
        elif self.asked.streams or self.streams:
            answer = self.asked.answer
            told = registry.error_events(self._path, message)
            self.outlet.write(told if answer is None else answer.interrupted(message))
            self.outlet.end()
            self.ticket.end(Outcome.ERROR_EVENT)
        else:
            self.outlet.cut()
            self.ticket.end(Outcome.LOST)


def _value(headers: Headers, name: bytes) -> bytes | None:
    return next((value for key, value in headers if key == name), None)


def _is_stream(headers: Headers) -> bool:
    return (_value(headers, b"content-type") or b"").startswith(b"text/event-stream")


def _length(headers: Headers) -> int | None:
    value = _value(headers, b"content-length")
    return int(value) if value is not None and value.isdigit() else None


def _error_in(event: bytes) -> tuple[int, bytes]:
    """An error event as the whole answer that the engine would have given."""
    data = event.partition(b"data:")[2].strip() or event
    try:
        told = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        told = {}
    error = told.get("error", told) if isinstance(told, dict) else {}
    code = error.get("code") if isinstance(error, dict) else None
    status = code if isinstance(code, int) and 400 <= code < 600 else 500
    return status, msgspec.json.encode({"error": error})


async def _all_of(call: Call, most: int) -> bytes:
    got = bytearray()
    while len(got) < most and (piece := await call.read()):
        got += piece
    return bytes(got)
