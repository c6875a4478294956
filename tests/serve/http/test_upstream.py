"""Connections to an engine: when one is used again, and what is known when one is lost."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from arriero.serve.http import upstream
from arriero.serve.http.interface import Address, UpstreamLostError
from arriero.serve.http.upstream import EngineCall, Pool

WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CHUNKS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
Behave = Callable[["Engine", bytes, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Callable[[Awaitable[Any]], Any]:
    def run(work: Any) -> Any:
        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            return runner.run(asyncio.wait_for(work, 30))

    return run


class Engine:
    """Counts connections, and does with each request what it is told."""

    def __init__(self, path: Path, behave: Behave) -> None:
        self.path, self.behave = path, behave
        self.connections = 0
        self.requests: list[bytes] = []
        self.gone = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = head.lower().partition(b"content-length: ")[2].partition(b"\r")[0]
                self.requests.append(head + await reader.readexactly(int(length or b"0")))
                await self.behave(self, self.requests[-1], writer)
                if writer.is_closing():
                    break
        self.gone.set()
        writer.close()


@contextlib.asynccontextmanager
async def engine(tmp_path: Path, behave: Behave) -> AsyncIterator[tuple[Engine, Pool]]:
    made = Engine(tmp_path / "e.sock", behave)
    server = await asyncio.start_unix_server(made.serve, str(made.path))
    pool = Pool(Address(made.path, key="own"))
    try:
        yield made, pool
    finally:
        pool.close()
        server.close()
        await asyncio.sleep(0.02)


async def whole(engine: Engine, request: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(WHOLE)


async def stream(engine: Engine, request: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(CHUNKS + b"2\r\nok\r\n0\r\n\r\n")
    writer.close()


async def ask(pool: Pool, method: str = "POST", body: bytes = b"x", **more: Any) -> bytes:
    return await all_of(await pool.send(method, b"/x?y", (), body, **more))


async def all_of(call: EngineCall) -> bytes:
    got = b""
    while piece := await call.read():
        got += piece
    return got


def test_a_connection_is_used_again(run: Any, tmp_path: Path) -> None:
    async def work() -> int:
        async with engine(tmp_path, whole) as (made, pool):
            for _ in range(5):
                assert await ask(pool) == b"ok"
            return made.connections

    assert run(work()) == 1


def test_at_most_so_often(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream, "_USES", 3)

    async def work() -> int:
        async with engine(tmp_path, whole) as (made, pool):
            for _ in range(5):
                assert await ask(pool) == b"ok"
            return made.connections

    assert run(work()) in (2, 3)  # one may be open ahead


def test_not_when_the_engine_may_be_closing_it(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream, "_IDLE_SECONDS", -1.0)

    async def work() -> int:
        async with engine(tmp_path, whole) as (made, pool):
            for _ in range(3):
                assert await ask(pool) == b"ok"
            return made.connections

    assert run(work()) == 3


def test_never_after_a_stream(run: Any, tmp_path: Path) -> None:
    """The engine ends the connection then, whatever it said in the head."""

    async def work() -> list[bytes]:
        async with engine(tmp_path, stream) as (made, pool):
            got = [await ask(pool) for _ in range(20)]
            assert made.connections in (20, 21)
            return got

    assert run(work()) == [b"ok"] * 20


def test_what_the_engine_is_sent(run: Any, tmp_path: Path) -> None:
    async def work() -> bytes:
        async with engine(tmp_path, whole) as (made, pool):
            headers = (
                (b"host", b"evil"), (b"authorization", b"Bearer client"), (b"x-api-key", b"client"),
                (b"origin", b"http://evil"), (b"expect", b"100-continue"), (b"x-kept", b"1"),
                (b"content-length", b"7"),
            )  # fmt: skip
            await all_of(await pool.send("POST", b"/x?y", headers, b"abc"))
            await all_of(await pool.send("GET", b"/x", (), b""))
            assert made.requests[1].startswith(b"GET /x HTTP/1.1\r\n")
            assert b"content-length" not in made.requests[1].lower()
            return made.requests[0]

    assert run(work()) == (
        b"POST /x?y HTTP/1.1\r\nHost: localhost\r\nx-kept: 1\r\nAuthorization: Bearer own\r\n"
        b"Content-Length: 3\r\n\r\nabc"
    )


def test_what_clients_do_not_get(run: Any, tmp_path: Path) -> None:
    async def behave(engine: Engine, request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(
            b"HTTP/1.1 100 Continue\r\nX-A: 1\r\n\r\n"
            b"HTTP/1.1 201 Made\r\nAccess-Control-Allow-Origin: *\r\nConnection: close, X-B\r\n"
            b"X-B: 1\r\nX-C: 2\r\nKeep-Alive: timeout=5\r\nContent-Length: 0\r\n\r\n"
        )

    async def work() -> EngineCall:
        async with engine(tmp_path, behave) as (_, pool):
            call = await pool.send("POST", b"/", (), b"")
            assert await call.read() == b""
            return call

    call = run(work())
    assert call.status == 201
    assert call.headers == ((b"x-c", b"2"), (b"content-length", b"0"))


LOST = {
    "at once": b"",
    "in the head": b"HTTP/1.1 200 OK\r\nContent-Le",
    "no HTTP": b"hello\r\n\r\n",
    "a head without an end": b"HTTP/1.1 200 OK\r\nX: " + b"a" * 100000,
    "in the body": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nok",
    "in a chunk": CHUNKS + b"5\r\nok",
    "between chunks": CHUNKS + b"2\r\nok\r\n",
    "a bad chunk": CHUNKS + b"2\r\nok\r\nzz\r\n",
}


@pytest.mark.parametrize("name", LOST)
def test_lost(run: Any, tmp_path: Path, name: str) -> None:
    async def behave(engine: Engine, request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(LOST[name])
        writer.close()

    async def work() -> UpstreamLostError:
        async with engine(tmp_path, behave) as (made, pool):
            with pytest.raises(UpstreamLostError) as caught:
                await ask(pool)
            assert len(made.requests) == 1  # never sent again here
            return caught.value

    assert run(work()).sent


def test_no_engine(run: Any, tmp_path: Path) -> None:
    async def work() -> list[bool]:
        sent = []
        for address in (Address(tmp_path / "none.sock"), Address(None, 1)):
            pool = Pool(address)
            with pytest.raises(UpstreamLostError) as caught:
                await ask(pool)
            sent.append(caught.value.sent)
            pool.close()
        return sent

    assert run(work()) == [False, False]


def test_an_answer_that_ends_with_its_connection(run: Any, tmp_path: Path) -> None:
    async def behave(engine: Engine, request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nok")
        writer.close()

    async def work() -> bytes:
        async with engine(tmp_path, behave) as (_, pool):
            return await ask(pool)

    assert run(work()) == b"ok"


def test_a_head_that_does_not_come(run: Any, tmp_path: Path) -> None:
    async def behave(engine: Engine, request: bytes, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0)

    async def work() -> None:
        async with engine(tmp_path, behave) as (made, pool):
            with pytest.raises(TimeoutError):
                await ask(pool, timeout=0.02)
            await made.gone.wait()  # the engine sees the client go

    run(work())


def test_who_gives_up_is_seen_to_go(run: Any, tmp_path: Path) -> None:
    async def behave(engine: Engine, request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(CHUNKS + b"2\r\nok\r\n")

    async def work() -> None:
        async with engine(tmp_path, behave) as (made, pool):
            call = await pool.send("POST", b"/", (), b"x")
            assert await call.read() == b"ok"
            call.close()
            await made.gone.wait()

    run(work())


def test_the_end_of_a_start_ends_its_requests(run: Any, tmp_path: Path) -> None:
    async def behave(engine: Engine, request: bytes, writer: asyncio.StreamWriter) -> None:
        if b"/stream" in request:
            writer.write(CHUNKS + b"2\r\nok\r\n")

    async def work() -> None:
        async with engine(tmp_path, behave) as (made, pool):
            call = await pool.send("POST", b"/stream", (), b"x")
            waiting = [asyncio.create_task(all_of(call)), asyncio.create_task(ask(pool))]
            while len(made.requests) < 2:
                await asyncio.sleep(0.005)
            pool.close()
            for task in waiting:
                with pytest.raises(UpstreamLostError):
                    await task
            with pytest.raises(UpstreamLostError):
                await ask(pool)

    run(work())


def test_an_answer_that_nobody_reads_holds_the_engine_back(run: Any, tmp_path: Path) -> None:
    size = 8 << 20

    async def work() -> tuple[int, int]:
        written = 0

        async def behave(engine: Engine, request: bytes, writer: asyncio.StreamWriter) -> None:
            nonlocal written
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
            while written < size:
                writer.write(b"a" * 65536)
                written += 65536
                await writer.drain()

        async with engine(tmp_path, behave) as (_, pool):
            call = await pool.send("POST", b"/", (), b"x")
            before = -1
            while before < written:  # until it stands still
                before = written
                await asyncio.sleep(0.05)
            return before, len(await all_of(call))

    stood, got = run(work())
    assert stood < size // 2
    assert got == size
    assert stood > 0


def test_a_long_body_goes_whole(run: Any, tmp_path: Path) -> None:
    async def work() -> bytes:
        async with engine(tmp_path, whole) as (made, pool):
            assert await ask(pool, body=b"ab" * (4 << 20)) == b"ok"
            return made.requests[0].partition(b"\r\n\r\n")[2]

    assert run(work()) == b"ab" * (4 << 20)
