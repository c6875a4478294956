"""An answer that grows, over as many starts of the engine as it takes: what all APIs share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Final

import msgspec

from arriero.serve.apis.events import Splitter, data_of, decoded, event_of, is_error
from arriero.serve.apis.interface import ApiError, Ask
from arriero.serve.apis.reading import Body, Wish, less, most_of
from arriero.serve.http.interface import Headers, Request

JSON: Final[Headers] = ((b"content-type", b"application/json; charset=utf-8"),)
_UNREAD: Final = 512
"""Events that are kept as they came before their text is taken out of them."""

Event = dict[str, Any]


class Growing(ABC):
    """Implements :class:`arriero.serve.apis.interface.Answer`.

    While nothing breaks, events pass as they came and are only looked through for their end; their
    JSON is read when the answer breaks, and every few hundred events, so that only text is kept.

    The events that end an answer are held back until its last has come: what ends in between is
    asked for again, and a client never sees an end and then more.
    """

    def __init__(self, wish: Wish, inside: Request, body: Body) -> None:
        self.wish = wish
        self.inside = inside
        self.body = body
        """What was asked of the engine: with ``stream``, even where the client wants it whole."""
        self.failure: bytes | None = None
        self.head: Event = {}
        """Fields that every event of this answer has: its id and the like."""
        self.close: Event = {}
        """The fields of the events that ended it."""
        self.texts: list[str] = []
        self.pieces = 0
        self.other = ""
        """What was sent that is no plain text."""
        self.before = 0
        """Tokens that were sent before the last continuation."""
        self.resumed = False
        self.spent = False
        """All tokens that were allowed had been sent before the last continuation."""
        self._whole = False
        self._passed = False
        self._held = b""
        self._unread: list[bytes] = []
        self._splitter = Splitter()

    # -- what APIs differ in

    @abstractmethod
    def ends(self, event: bytes) -> bool:
        """Whether this event, as bytes, belongs to the end of an answer.

        Text of an answer can say anything: look at how the event begins, or for bytes with
        quotes, which text has only with a backslash.
        """

    def goes_on(self, event: bytes) -> bool:
        """Whether the answer goes on with this event, though it seemed to end."""
        return False

    @abstractmethod
    def is_last(self, event: bytes) -> bool:
        """Whether an answer is whole with this event."""

    @abstractmethod
    def read(self, event: Event) -> None:
        """Note what an event says (``head``, ``texts``, ``other``, ``close``)."""

    @abstractmethod
    def stitched(self, event: Event) -> list[bytes]:
        """An event of a continuation as one of the answer that it continues."""

    @abstractmethod
    def continuation(self, text: str) -> Request:
        """The request for what comes after this text; ``before`` tokens were sent."""

    @abstractmethod
    def complete(self, text: str) -> Event:
        """The answer as if it had not been streamed."""

    def failed(self, message: str) -> bytes:
        """The event by which clients of this API know that an answer failed."""
        error = {"code": 500, "message": message, "type": "server_error"}
        return event_of({"error": error})

    # -- Answer

    @property
    def whole(self) -> bool:
        """See :class:`Answer`."""
        return self._whole

    @property
    def sent(self) -> bool:
        """See :class:`Answer`. What was collected counts: it need not be made again."""
        if self.wish.streams:
            return self._passed
        self._settle()
        return bool(self.texts)

    @property
    def continuable(self) -> bool:
        """See :class:`Answer`. Before any text everything can be asked for again."""
        self._settle()
        if self.other:
            return False
        return not self.texts or not self.wish.why_not

    def feed(self, data: bytes) -> bytes:
        """See :class:`Answer`."""
        passed = []
        for event in self._splitter.feed(data):
            if self.failure is not None:
                break
            if is_error(event):
                self.failure = event
                break
            passed += [self._taken(each) for each in self._read_again(event)]
        found = b"".join(passed)
        self._passed = self._passed or bool(found)
        return found

    def _read_again(self, event: bytes) -> list[bytes]:
        """The event, or, in a continuation, what it is to the client."""
        if not self.resumed:
            return [event]
        data = data_of(event)
        return self.stitched(data) if data is not None else self.without_data(event)

    def without_data(self, event: bytes) -> list[bytes]:
        """An event of a continuation that says nothing, or only that it is the last."""
        return [event]

    def _taken(self, event: bytes) -> bytes:
        """What of an event goes to the client now."""
        if self.is_last(event):
            self._whole = True
        if self._held and self.goes_on(event):
            event, self._held = self._held + event, b""
        elif (self._held or self.ends(event)) and not self.wish.why_not:
            self._held += event
            if not self._whole:
                return b""
            event, self._held = self._held, b""
        self._unread.append(event)
        if len(self._unread) > _UNREAD:
            self._settle()
        return event

    async def rest(self, ask: Ask) -> Request:
        """See :class:`Answer`."""
        self._settle()
        self._splitter, self._held, self.failure = Splitter(), b"", None
        self.resumed = self._passed
        text = "".join(self.texts)
        if not text:
            self.before, self.spent = 0, False
            return self.inside
        await self.prepare(ask)
        self.before = await self.tokens_sent(ask, text)
        most = most_of(self.body)
        self.spent = most is not None and self.before >= most
        return self.continuation(text)

    async def prepare(self, ask: Ask) -> None:  # noqa: B027  most need nothing
        """Find out what a continuation needs beside the text; nothing, for most APIs."""

    async def tokens_sent(self, ask: Ask, text: str) -> int:
        """Tokens of the text that was sent. A piece of a stream has one, seldom more."""
        got = decoded(await ask("/tokenize", msgspec.json.encode({"content": text})))
        tokens = (got or {}).get("tokens")
        if not isinstance(tokens, list):
            raise ApiError("the tokens of what was sent could not be counted")
        return max(len(tokens), self.pieces)

    def interrupted(self, message: str) -> bytes:
        """See :class:`Answer`."""
        return self.failed(message)

    def result(self) -> tuple[Headers, bytes]:
        """See :class:`Answer`."""
        self._settle()
        return JSON, msgspec.json.encode(self.complete("".join(self.texts)))

    # -- what they use

    def lowered(self) -> Body:
        """The body with the tokens that are left."""
        return less(self.body, self.before)

    def say(self, text: object) -> None:
        """Note a piece of text."""
        if isinstance(text, str) and text:
            self.texts.append(text)
            self.pieces += 1

    def _settle(self) -> None:
        for raw in self._unread:
            for event in raw.split(b"\n\n"):
                data = data_of(event)
                if data is not None:
                    self.read(data)
        self._unread.clear()
        if len(self.texts) > 1:
            self.texts = ["".join(self.texts)]
