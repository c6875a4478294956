"""What the engine answers to one request, as it comes: passed on, collected, or an error."""

from __future__ import annotations

import asyncio
from typing import Final

from arriero.serve.apis.interface import Answer
from arriero.serve.http.interface import Call, Headers, UpstreamLostError
from arriero.serve.refusals import Fault, is_crowded, is_out_of_memory, refusal_of
from arriero.serve.requests.case import Case
from arriero.serve.requests.ledger import Phase
from arriero.serve.requests.losses import Losses, RetryError
from arriero.serve.requests.writing import AS_JSON, Writer
from arriero.serve.supervisor.interface import Engine, Live

WHOLE: Final = 8 << 20
"""Bytes of an answer that are collected before any of it is passed on, so that it can be asked for
again. A longer one is passed on as it comes."""
_BAD: Final = 1 << 20
_WAKING: Final = 0.5
_LOADING: Final = 503
_NOT_DONE: Final = 501


class Receiver:
    """Reads the answers of the engine to one request."""

    def __init__(self, case: Case, writer: Writer, losses: Losses, engine: Engine) -> None:
        self._case, self._writer, self._losses, self._engine = case, writer, losses, engine

    async def receive(self, live: Live, call: Call) -> None:
        """Read an answer whose head is there.

        Raises:
            RetryError: The request goes again.
            UpstreamLostError: The answer broke off.
        """
        asked = self._case.asked
        if call.status >= 400 and asked.works:
            await self._engine_error(live, call)
        elif asked.answer is None or (call.status == 200 and not _is_stream(call.headers)):
            await self._pass_on(live, call)
        elif call.status != 200:
            body = await all_of(call, _BAD)
            await self._writer.finish(call.status, call.headers, body)
        else:
            await self._understand(live, call, asked.answer)

    # -- what is understood

    async def _understand(self, live: Live, call: Call, answer: Answer) -> None:
        """Pass a stream on, event by event, or collect an answer that is wanted whole."""
        case, writer, progressed = self._case, self._writer, self._engine.progressed
        streams, outlet = case.asked.streams, writer.outlet
        case.ticket.move(Phase.ANSWERING)
        while piece := await call.read():
            progressed(live.generation)
            events = answer.feed(piece)
            if answer.failure is not None:
                await self._failed_inside(live, answer.failure)
                return
            if events and streams:
                writer.begin_stream(call.headers)
                outlet.write(events)
                await outlet.room()
            writer.heard(piece)
        if not answer.whole:
            raise UpstreamLostError("the answer ended before its end", sent=True)
        if streams:
            writer.begin_stream(call.headers)
        else:
            headers, body = answer.result()
            writer.begin(200, headers, len(body))
            outlet.write(body)
        writer.answered()

    async def _failed_inside(self, live: Live, event: bytes) -> None:
        """An error event came instead of the rest of an answer; returns if it is the client's."""
        if is_crowded(event):
            if self._losses.may_crowd:
                await self._losses.crowd()
                return
        elif await self._engine.failed(live.generation, 500, event):
            await self._losses.after_loss(live, "it answered with an error")
            return
        self._writer.told_of(event)

    # -- what is passed on

    async def _pass_on(self, live: Live, call: Call) -> None:
        """An answer of which nothing has to be understood.

        Up to a size it is collected first, so that it can be asked for again if the engine dies.
        """
        case, writer = self._case, self._writer
        case.ticket.move(Phase.ANSWERING)
        events, length = _is_stream(call.headers), _length(call.headers)
        if case.request.method == "HEAD":
            writer.begin(call.status, call.headers, length)
        elif events or (length is not None and length > WHOLE):
            case.streams = events
            if not writer.outlet.begun:
                writer.begin(call.status, call.headers, length)
            await self._passed(live, call)
        else:
            body, more = await self._collected(live, call)
            if not more:
                await writer.finish(call.status, call.headers, body)
                return
            if writer.outlet.begun:
                await writer.break_off("the answer is no stream")
                return
            writer.begin(call.status, call.headers, length)
            writer.outlet.write(body)
            await self._passed(live, call)
        writer.answered()

    async def _passed(self, live: Live, call: Call) -> None:
        outlet = self._writer.outlet
        while piece := await call.read():
            self._progressed(live)
            self._case.passed = True
            outlet.write(piece)
            await outlet.room()

    def _progressed(self, live: Live) -> None:
        """Only of what needs a slot: an engine that hangs still says that it is healthy."""
        if self._case.asked.works:
            self._engine.progressed(live.generation)

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

    # -- errors

    async def _engine_error(self, live: Live, call: Call) -> None:
        """An error to a request that works: the engine may be sick, or the request be at fault."""
        body = await all_of(call, _BAD)
        refusal = refusal_of(call.status, body)
        if refusal is not None and refusal.fault is Fault.TOO_LONG:
            await self._writer.finish(400, AS_JSON, refusal.body())
        elif refusal is not None and self._losses.may_crowd:
            await self._losses.crowd()
        elif call.status == _LOADING and b"oading model" in body:
            await asyncio.sleep(_WAKING)  # it wakes from its sleep
            self._case.hold(_WAKING)
            raise RetryError
        elif (
            refusal is None
            and _may_be_sick(call.status, body)
            and await self._engine.failed(live.generation, call.status, body)
        ):
            await self._losses.after_loss(live, f"it answered {call.status}")
        else:
            await self._writer.finish(call.status, call.headers, body)


def _may_be_sick(status: int, body: bytes) -> bool:
    """Whether an error can be the engine's own fault."""
    return is_out_of_memory(body) or (status >= 500 and status != _NOT_DONE)


async def all_of(call: Call, most: int) -> bytes:
    """The body of an answer, up to about a size."""
    got = bytearray()
    while len(got) < most and (piece := await call.read()):
        got += piece
    return bytes(got)


def _value(headers: Headers, name: bytes) -> bytes | None:
    return next((value for key, value in headers if key == name), None)


def _is_stream(headers: Headers) -> bool:
    return (_value(headers, b"content-type") or b"").startswith(b"text/event-stream")


def _length(headers: Headers) -> int | None:
    value = _value(headers, b"content-length")
    return int(value) if value is not None and value.isdigit() else None
