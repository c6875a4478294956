"""An engine, its connections, an API and clients, all played by the test, without a clock.

The API: a request says how many words its answer has. The engine answers with the words one after
the other and with an end; asked for the rest, with those that come after what was said.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

from arriero.serve.apis import registry
from arriero.serve.apis.interface import Ask, Asked, Continue, Defaults
from arriero.serve.http.interface import Headers, Request, UpstreamLostError
from arriero.serve.supervisor.interface import GaveUpError, Live, Loss, State

STREAM: Headers = ((b"content-type", b"text/event-stream"),)
JSON: Headers = ((b"content-type", b"application/json"),)
END = b"END;"


def request(job: int, kind: str, words: int, client: str = "a", path: str = "/words") -> Request:
    """``kind``: ``stream``, ``whole``, ``shaped`` (a stream that cannot be continued), ``plain``
    (nobody understands it, it works), ``other`` (needs no slot)."""
    body = json.dumps({"job": job, "kind": kind, "words": words, "said": 0}).encode()
    return Request("POST", path.encode(), path, (), body, client)


def words(job: int, count: int, first: int = 0) -> list[bytes]:
    return [b"%d.%d;" % (job, n) for n in range(first, count)]


class Words:
    """Implements ``Answer``."""

    def __init__(self, asked: dict[str, Any], inside: Request) -> None:
        self.asked, self.inside = asked, inside
        self.said: list[bytes] = []
        self.whole = False
        self.failure: bytes | None = None
        self.rests = 0
        self._rest = b""

    @property
    def sent(self) -> bool:
        return bool(self.said)

    @property
    def continuable(self) -> bool:
        return bool(self.asked["kind"] != "shaped")

    def feed(self, data: bytes) -> bytes:
        *found, self._rest = (self._rest + data).split(b";")
        passed = b""
        for word in found:
            if word == b"ERROR":
                self.failure = b"ERROR;"
                break
            self.whole = self.whole or word == b"END"
            if word != b"END":
                self.said.append(word + b";")
            passed += word + b";"
        return passed

    async def rest(self, ask: Ask) -> Request:
        self.rests += 1
        self._rest, self.failure = b"", None
        body = {**self.asked, "said": len(self.said)}
        return replace(self.inside, body=json.dumps(body).encode())

    def interrupted(self, message: str) -> bytes:
        return b"BROKEN;"

    def result(self) -> tuple[Headers, bytes]:
        return JSON, b"".join(self.said)


class Words_registry:  # noqa: N801  stands for a module
    """Stands for ``arriero.serve.apis.registry``."""

    @staticmethod
    def asked_of(request: Request, defaults: Defaults, allowed: Continue) -> Asked:
        asked = json.loads(request.body)
        kind = asked["kind"]
        answer = Words(asked, request) if kind in {"stream", "whole", "shaped"} else None
        streams = kind in {"stream", "shaped"}
        return Asked(kind, kind != "other", streams, request, answer, "")

    @staticmethod
    def error_body(path: str, status: int, message: str, kind: str) -> tuple[Headers, bytes]:
        return JSON, message.encode()

    @staticmethod
    def error_events(path: str, message: str) -> bytes:
        return b"BROKEN;"

    @staticmethod
    def message_of(body: bytes) -> str:
        return body.decode()


def words_instead() -> Any:
    """A patch: while it is on, the API of words stands for all others."""
    names = [name for name in vars(Words_registry) if not name.startswith("_")]
    return patch.multiple(registry, **{name: getattr(Words_registry, name) for name in names})


class FakeCall:
    """One request at the engine, played by the test."""

    def __init__(self, asked: dict[str, Any]) -> None:
        self.asked = asked
        self.status = 0
        self.headers: Headers = ()
        self.head: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.left = words(asked["job"], asked["words"], asked["said"])
        self.closed = False
        self.over = False
        self._pieces: asyncio.Queue[bytes | UpstreamLostError] = asyncio.Queue()

    async def read(self) -> bytes:
        found = await self._pieces.get()
        if isinstance(found, UpstreamLostError):
            raise found
        return found

    def close(self) -> None:
        self.closed = True

    # what the engine does

    @property
    def working(self) -> bool:
        return not self.closed and not self.over

    def begin(self, status: int = 200, headers: Headers | None = None) -> None:
        if headers is None:
            headers = STREAM if self.asked["kind"] in {"stream", "whole", "shaped"} else JSON
        self.status, self.headers = status, headers
        self.head.set_result(None)

    def step(self) -> None:
        """The head, or the next word, or the end."""
        if not self.head.done():
            self.begin()
        elif self.left:
            self.give(self.left.pop(0))
        else:
            if self.headers is STREAM:
                self.give(END)
            self.finish()

    def give(self, piece: bytes) -> None:
        self._pieces.put_nowait(piece)

    def finish(self) -> None:
        self.over = True
        self._pieces.put_nowait(b"")

    def lose(self, reason: str = "it is gone") -> None:
        self.over = True
        error = UpstreamLostError(reason, sent=True)
        if self.head.done():
            self._pieces.put_nowait(error)
        else:
            self.head.set_exception(error)


class FakeUpstream:
    """The connections to one start."""

    def __init__(self) -> None:
        self.calls: list[FakeCall] = []
        self.gone = False

    async def send(
        self,
        method: str,
        target: bytes,
        headers: Headers,
        body: bytes,
        *,
        timeout: float | None = None,
    ) -> FakeCall:
        if self.gone:
            raise UpstreamLostError("no connection", sent=False)
        call = FakeCall(json.loads(body))
        self.calls.append(call)
        try:
            await call.head
        except asyncio.CancelledError:
            call.close()
            raise
        return call

    def close(self) -> None:
        self.gone = True

    @property
    def working(self) -> list[FakeCall]:
        return [call for call in self.calls if call.working]


class FakeEngine:
    """Implements ``Engine``; the test kills it and brings it back."""

    def __init__(self, slots: int | None = 1) -> None:
        self.slots = slots
        self.state = State.STARTING
        self.live: Live | None = None
        self.upstream = FakeUpstream()
        self.generation = 0
        self.blames = False
        self.requests = 0
        self.signs = 0
        self.sick_answers: set[int] = set()
        self._turn = asyncio.Event()
        self._over = ""

    async def serving(self) -> Live:
        while self.live is None:
            if self._over:
                raise GaveUpError(self._over)
            turn = self._turn
            await turn.wait()
        return self.live

    async def lost(self, generation: int, reason: str) -> Loss:
        alive = self.live is not None and self.live.generation == generation
        await asyncio.sleep(0)
        return Loss(alive, self.blames and not alive, None if alive else f"inci-{generation}")

    async def failed(self, generation: int, status: int, body: bytes) -> bool:
        await asyncio.sleep(0)
        if self.live is None or self.live.generation != generation:
            return True
        if body == b"sick" or b"bad_alloc" in body:
            self.die(blames=True)
            return True
        return False

    def progressed(self, generation: int) -> None:
        self.signs += 1

    def working(self, requests: int) -> None:
        self.requests = requests

    # what the test does

    def back(self) -> None:
        self.generation += 1
        self.upstream = FakeUpstream()
        self.live = Live(self.generation, self.upstream, self.slots, 4096, Defaults())
        self._turned(State.READY)

    def die(self, *, blames: bool) -> None:
        self.live, self.blames = None, blames
        self.upstream.close()
        for call in self.upstream.working:
            call.lose()
        self._turned(State.RECOVERING)

    def give_up(self, why: str) -> None:
        self.live, self._over = None, why
        self._turned(State.FAILED)

    def _turned(self, state: State) -> None:
        self.state = state
        self._turn.set()
        self._turn = asyncio.Event()


@dataclass
class FakeOutlet:
    """A client that takes everything."""

    begun: bool = False
    status: int = 0
    headers: dict[bytes, bytes] = field(default_factory=dict)
    body: bytes = b""
    ended: bool = False
    was_cut: bool = False

    def begin(
        self, status: int, headers: Sequence[tuple[bytes, bytes]], length: int | None
    ) -> None:
        assert not self.begun, "two heads"
        self.begun, self.status, self.headers = True, status, dict(headers)

    def write(self, data: bytes) -> None:
        assert self.begun, "a body before its head"
        assert not self.over, "written after the end"
        self.body += data

    async def room(self) -> None:
        pass

    def end(self) -> None:
        assert self.begun
        assert not self.over, "two ends"
        self.ended = True

    def cut(self) -> None:
        self.was_cut = True

    @property
    def over(self) -> bool:
        return self.ended or self.was_cut

    def text(self) -> bytes:
        """Without comments."""
        lines = self.body.replace(b": arriero waiting\n\n", b"")
        return lines.replace(b": arriero continued\n\n", b"")
