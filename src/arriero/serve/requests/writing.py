"""What the client of one request is given: its answer, comments, a refusal, an error."""

from __future__ import annotations

from typing import Final

import msgspec

from arriero.serve.apis import registry
from arriero.serve.apis.interface import CONTINUED, WAITING
from arriero.serve.http.interface import Headers, Outlet
from arriero.serve.requests.case import Case
from arriero.serve.requests.ledger import Outcome

AS_JSON: Final = ((b"content-type", b"application/json"),)
_EVENTS: Final = ((b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache"))


class Writer:
    """Writes to one client; what ends its answer ends the ticket of the request too."""

    def __init__(self, case: Case, outlet: Outlet) -> None:
        self.case, self.outlet = case, outlet
        self._commented = 0.0

    # -- an answer

    def begin(self, status: int, headers: Headers, length: int | None) -> None:
        """The head, with notes on what happened to the request before."""
        self.outlet.begin(status, (*headers, *self._notes()), length)

    def begin_stream(self, headers: Headers = _EVENTS) -> None:
        """The head of a stream, unless it has begun."""
        if not self.outlet.begun:
            self.begin(200, headers, None)

    def answered(self) -> None:
        """The answer of the engine was written to its end."""
        self.outlet.end()
        self.case.ticket.end(Outcome.ANSWERED)

    async def finish(self, status: int, headers: Headers, body: bytes) -> None:
        """A whole answer of the engine, or, in a stream that has begun, an error in its form."""
        if self.outlet.begun:
            await self.break_off(registry.message_of(body) or f"the engine answered {status}")
            return
        self.whole(status, headers, body, Outcome.ANSWERED)
        self.heard(body)

    def whole(self, status: int, headers: Headers, body: bytes, outcome: Outcome) -> None:
        """An answer from its head to its end."""
        self.begin(status, headers, len(body))
        self.outlet.write(body)
        self.outlet.end()
        self.case.ticket.end(outcome)

    def heard(self, piece: bytes) -> None:
        """Who waits for a piece of an answer of the engine hears it."""
        if self.case.rules.heard is not None:
            self.case.rules.heard(piece)

    def _notes(self) -> Headers:
        notes: Headers = ()
        if self.case.tries:
            notes += ((b"x-arriero-replayed", str(self.case.tries).encode()),)
        if self.case.continued:
            notes += ((b"x-arriero-continued", str(self.case.continued).encode()),)
        return notes

    # -- comments

    async def comment_waiting(self) -> None:
        """Tell a client that waits for a stream that it does, every so many seconds held."""
        case = self.case
        if case.asked.streams and case.held_for - self._commented >= case.rules.comment:
            self._commented = case.held_for
            self.begin_stream()
            self.outlet.write(WAITING)
            await self.outlet.room()

    def comment_continued(self) -> None:
        """In a stream: what follows is of another start of the engine."""
        if self.case.asked.streams:
            self.begin_stream()
            self.outlet.write(CONTINUED)

    # -- no answer

    def told_of(self, event: bytes) -> None:
        """Give the client an error event of the engine as it came."""
        if self.case.asked.streams:
            self.begin_stream()
            self.outlet.write(event)
            self.outlet.end()
            self.case.ticket.end(Outcome.ERROR_EVENT)
        else:
            status, body = _error_in(event)
            self.whole(status, AS_JSON, body, Outcome.ANSWERED)

    async def refuse(self, message: str, *, retry: int) -> None:
        """There will be no answer now; in so many seconds there may."""
        await self._fail(503, message, ((b"retry-after", str(retry).encode()),))

    async def break_off(self, message: str) -> None:
        """End an answer that has begun as its API ends one that fails."""
        if not self.outlet.begun:
            await self._fail(500, message)
        elif self.case.asked.streams or self.case.streams:
            answer = self.case.asked.answer
            told = registry.error_events(self.case.path, message)
            self.outlet.write(told if answer is None else answer.interrupted(message))
            self.outlet.end()
            self.case.ticket.end(Outcome.ERROR_EVENT)
        else:
            self.outlet.cut()
            self.case.ticket.end(Outcome.LOST)

    async def _fail(self, status: int, message: str, more: Headers = ()) -> None:
        if self.outlet.begun:
            await self.break_off(message)
            return
        headers, body = registry.error_body(self.case.path, status, message, "server_error")
        outcome = Outcome.REFUSED if status == 503 else Outcome.ERROR_EVENT
        self.whole(status, (*headers, *more), body, outcome)


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
