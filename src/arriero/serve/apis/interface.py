"""What the life of a request asks of an API: functions on bytes, without a clock."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from arriero.serve.http.interface import Headers, Request


class Continue(StrEnum):
    """Which broken answers are continued (``--continue``)."""

    GREEDY = "greedy"
    ALWAYS = "always"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Defaults:
    """What the command and the engine say of a request that leaves it open."""

    temperature: float = 0.8
    top_k: int = 40
    build: int | None = None
    prefix: str = ""
    """``--api-prefix``."""


Ask = Callable[[str, bytes], Awaitable[bytes]]
"""POST a JSON body to a path of the engine (without prefix), return the body of a 200 answer.

Raises ``ApiError`` for any other status, and ``UpstreamLostError``."""


class ApiError(Exception):
    """The engine refused what a continuation needs: the answer ends with an error event."""


class Answer(Protocol):
    """The answer to one request as it grows, over as many starts of the engine as it takes.

    For a stream it passes whole events on and keeps what it has passed on, so that the rest can be
    asked for. For an answer that is wanted whole but streamed inside it collects.
    """

    @property
    def whole(self) -> bool:
        """Whether the last event has come: nothing is missing."""

    @property
    def continuable(self) -> bool:
        """Whether what has been sent so far can be continued: plain text, nothing else."""

    @property
    def sent(self) -> bool:
        """Whether a client has been given any part of it that cannot be taken back."""

    @property
    def failure(self) -> bytes | None:
        """An event of an error that came instead of the rest; ``feed`` has not passed it on."""

    def feed(self, data: bytes) -> bytes:
        """Take bytes from the engine; return those for the client: whole events, as they came."""

    async def rest(self, ask: Ask) -> Request:
        """The request for what is missing. Later ``feed``s are read as its answer.

        It may be asked for again before anything of it has come, or in the middle of it.

        Raises:
            ApiError: It cannot be asked for.
        """

    def interrupted(self, message: str) -> bytes:
        """The events that end a broken stream properly in this API: an error that clients know."""

    def result(self) -> tuple[Headers, bytes]:
        """The whole answer, as if it had not been streamed: headers and body."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request asks for.

    Attributes:
        kind: ``chat``, ``completion``, ``infill``, ``messages``, ``responses``, ``embedding``,
            ``rerank``, ``transcription``, ``other``.
        works: It occupies a slot of the engine, so that it queues; else it goes straight through.
        streams: The client wants a stream of events.
        inside: The request as the engine gets it; differs from the client's where an answer that is
            wanted whole is streamed inside.
        answer: None where nothing of the answer has to be understood: it is passed on as it comes.
        why_not: Why a broken answer could not be continued; empty where it can.
    """

    kind: str
    works: bool
    streams: bool
    inside: Request
    answer: Answer | None
    why_not: str = ""


class Apis(Protocol):
    """The one entry: module ``arriero.serve.apis.registry`` has these functions."""

    def asked_of(self, request: Request, defaults: Defaults, allowed: Continue) -> Asked: ...

    def error_body(self, path: str, status: int, message: str, kind: str) -> tuple[Headers, bytes]:
        """A JSON error as the API at this path (without prefix) gives it."""

    def error_events(self, path: str, message: str) -> bytes:
        """A stream that consists of an error alone, in the form of the API at this path."""

    def message_of(self, body: bytes) -> str:
        """What an error of the engine says; empty where it says nothing."""


WAITING: bytes = b": arriero waiting\n\n"
CONTINUED: bytes = b": arriero continued\n\n"

Names = Sequence[str]
