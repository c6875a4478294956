"""A server to look at: a view with given documents, and the endpoints behind a real socket."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

from aiohttp import web

from arriero.base.redact import Redactor
from arriero.record import Incident, Status
from arriero.serve.control.handler import Control
from arriero.serve.http.interface import Request
from tests.report import served

KEY = "key-of-the-server-1"
LOG = (
    "0.02.294.521 I srv  llama_server: model loaded",
    "0.02.298.155 I srv  llama_server: listening on http://127.0.0.1:41068",
    '0.02.400.000 D srv  request: {"prompt": "the blue whale of Ana"}',
    "and a second line about the blue whale",
    "0.03.167.460 I slot print_timing: id  1 | task 0 |       total time =  470.40 ms / 52 tokens",
)


@dataclass
class Seen:
    """A view that shows what a test has put into it, and answers for the engine."""

    now: Status = field(default_factory=served.status)
    lost: tuple[Incident, ...] = field(default_factory=lambda: (served.incident(), served.killed()))
    lines: Sequence[str] = LOG
    answers: dict[str, bytes] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    asleep: bool = False

    def status(self) -> Status:
        return self.now

    def incidents(self) -> Sequence[Incident]:
        return self.lost

    def log(self) -> Sequence[str]:
        return self.lines

    async def ask(self, path: str) -> bytes | None:
        self.asked.append(path)
        return self.answers.get(path)


class Written:
    """An outlet that keeps what is written."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.length: int | None = None
        self.body = b""
        self.ended = False

    @property
    def begun(self) -> bool:
        return bool(self.status)

    def begin(
        self, status: int, headers: Sequence[tuple[bytes, bytes]], length: int | None
    ) -> None:
        self.status, self.headers, self.length = status, list(headers), length

    def write(self, data: bytes) -> None:
        self.body += data

    async def room(self) -> None:
        return

    def end(self) -> None:
        self.ended = True

    def cut(self) -> None:
        raise AssertionError("an answer was cut off")


def request(path: str, method: str = "GET") -> Request:
    return Request(method, path.encode(), path.partition("?")[0], (), b"", "client")


@asynccontextmanager
async def listening(view: Seen, key: str = "", port: int = 0) -> AsyncIterator[str]:
    """The endpoints on loopback; the URL of the page."""
    control = Control(view, Redactor(secrets=[key] if key else []))

    async def answer(asked: web.BaseRequest) -> web.StreamResponse:
        written = Written()
        allowed = not key or asked.headers.get("Authorization") == f"Bearer {key}"
        await control.answer(request(asked.path, asked.method), written, allowed=allowed)
        headers = [(name.decode(), value.decode()) for name, value in written.headers]
        return web.Response(status=written.status, headers=headers, body=written.body)

    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port, reuse_address=True)
    await site.start()
    try:
        port = runner.addresses[0][1]
        yield f"http://127.0.0.1:{port}/arriero/"
    finally:
        await runner.cleanup()


@contextmanager
def beside(view: Seen, key: str = "") -> Iterator[str]:
    """The same in a thread of its own, for clients that wait; the server's address."""
    urls: queue.SimpleQueue[str] = queue.SimpleQueue()
    loop = asyncio.new_event_loop()
    done = asyncio.Event()

    async def serve() -> None:
        async with listening(view, key) as url:
            urls.put(url)
            await done.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    try:
        yield urls.get(timeout=20).removesuffix("/arriero/")
    finally:
        loop.call_soon_threadsafe(done.set)
        thread.join()
        loop.close()
