"""Connections of clients: answers in order, bounds, and what becomes of those who do not read."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import ssl
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from arriero.serve.http.front import Listener
from arriero.serve.http.interface import Handler, Outlet, Request
from arriero.serve.settings import Settings
from tests.serve.http.test_reading import Keeper, chunked, get, post

SETTINGS = Settings()
LAST = b"Connection: close\r\n"
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Callable[[Awaitable[Any]], Any]:
    def run(work: Any) -> Any:
        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            return runner.run(asyncio.wait_for(work, 30))

    return run


async def echo(request: Request, outlet: Outlet) -> None:
    """Answers with the path and the body; late where the path says so."""
    if request.path == "/late":
        await asyncio.sleep(0.05)
    body = request.path.encode() + b" " + request.body
    outlet.begin(200, ((b"x-a", b"b"),), len(body))
    outlet.write(body)
    outlet.end()


@contextlib.asynccontextmanager
async def listening(
    handler: Handler = echo, settings: Settings = SETTINGS
) -> AsyncIterator[tuple[Listener, int]]:
    listener = Listener(settings, Keeper(), handler)
    port = await listener.listen("127.0.0.1", 0, None, None)
    try:
        yield listener, port
    finally:
        await listener.close()
        await until(lambda: not listener.connections)
        assert listener.held.bytes == 0


async def until(true: Callable[[], object]) -> None:
    while not true():
        await asyncio.sleep(0.005)


async def tell(port: int, *pieces: bytes) -> bytes:
    """Send and read until the other side closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for piece in pieces:
            writer.write(piece)
            await asyncio.sleep(0)
        return await reader.read()
    finally:
        writer.close()


def bodies(data: bytes) -> list[bytes]:
    """The bodies of answers of known length, in order."""
    found = []
    while data:
        head, _, data = data.partition(b"\r\n\r\n")
        lines = [line for line in head.split(b"\r\n") if line.startswith(b"content-length: ")]
        length = int(lines[0][16:]) if lines else 0
        found.append(data[:length])
        data = data[length:]
    return found


def test_answers_come_in_order(run: Any) -> None:
    async def work() -> bytes:
        async with listening() as (_, port):
            sent = get(b"/late") + post(b"1") * 40 + get(b"/late") + chunked(b"2") + get(more=LAST)
            return await tell(port, sent)

    assert bodies(run(work())) == [b"/late ", *[b"/x 1"] * 40, b"/late ", b"/x 2", b"/ "]


def test_what_is_wrong_is_told_after_what_was_right(run: Any) -> None:
    async def work() -> tuple[bytes, int]:
        refused = 0

        def count() -> None:
            nonlocal refused
            refused += 1

        async with listening() as (listener, port):
            listener.refused = count
            data = await tell(port, get(b"/late") + post(b"", b"/secret") + b"nonsense\r\n\r\n")
            return data, refused

    data, refused = run(work())
    statuses = re.findall(rb"HTTP/1.1 (\d+)", data)
    assert statuses == [b"200", b"401", b"400"]
    assert refused == 2


def test_a_client_that_asks_first_is_told_to_go_on(run: Any) -> None:
    async def work() -> bytes:
        async with listening() as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            head, _, body = post(b"hello", more=b"Expect: 100-continue\r\n" + LAST).partition(
                b"\r\n\r\n"
            )
            writer.write(get(b"/late") + head + b"\r\n\r\n")
            first = await reader.readuntil(b"/late ")
            first = await reader.readuntil(b"\r\n\r\n")
            writer.write(body)
            rest = await reader.read()
            writer.close()
            return first + rest

    data = run(work())
    assert data.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200")
    assert data.endswith(b"/x hello")


def test_streams_in_chunks_and_for_old_clients_without(run: Any) -> None:
    async def stream(request: Request, outlet: Outlet) -> None:
        outlet.begin(200, (), None)
        for piece in (b"one", b"", b"two"):
            await asyncio.sleep(0)
            outlet.write(piece)
            await outlet.room()
        outlet.end()

    async def work() -> list[bytes]:
        async with listening(stream) as (_, port):
            old = get(more=b"Connection: keep-alive\r\n").replace(b"/1.1", b"/1.0")
            head = b"HEAD" + get(more=LAST)[3:]
            return [await tell(port, sent) for sent in (get(more=LAST), old, head)]

    new, old, head = run(work())
    assert new.endswith(b"\r\n\r\n3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n")
    assert b"connection: close" in old
    assert b"chunked" not in old
    assert old.endswith(b"\r\n\r\nonetwo")
    assert head.endswith(b"\r\n\r\n")


@pytest.mark.parametrize("written", [b"abcd", b"abcdef", None])
def test_an_answer_of_another_length_breaks_the_connection(run: Any, written: bytes | None) -> None:
    async def wrong(request: Request, outlet: Outlet) -> None:
        outlet.begin(200, (), 5)
        if written is not None:
            outlet.write(written)
            outlet.end()

    async def work() -> bytes:
        async with listening(wrong) as (_, port):
            try:
                return await tell(port, get() * 2)
            except ConnectionResetError:
                return b""

    assert run(work()).count(b"HTTP/1.1") <= 1


def test_who_goes_ends_the_work(run: Any) -> None:
    async def work() -> None:
        begun, ended = asyncio.Event(), asyncio.Event()

        async def wait(request: Request, outlet: Outlet) -> None:
            begun.set()
            try:
                await asyncio.sleep(1000)
            finally:
                ended.set()

        async with listening(wait) as (_, port):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(post(b"a" * 1000) * 3)
            await begun.wait()
            writer.close()
            await ended.wait()

    run(work())


def test_who_does_not_read_is_cut_off(run: Any) -> None:
    async def work() -> int:
        written, ended = 0, asyncio.Event()

        async def flood(request: Request, outlet: Outlet) -> None:
            nonlocal written
            outlet.begin(200, (), None)
            try:
                while True:
                    outlet.write(b"a" * 65536)
                    written += 65536
                    await outlet.room()
            finally:
                ended.set()

        async with listening(flood) as (listener, port):
            made = socket.socket()
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            made.setblocking(False)
            await asyncio.get_running_loop().sock_connect(made, ("127.0.0.1", port))
            await asyncio.get_running_loop().sock_sendall(made, get())
            await until(lambda: any(c._stalled_since is not None for c in listener.connections))
            (connection,) = listener.connections
            assert connection._stalled_since is not None
            connection.look_at_clock(connection._stalled_since + 59)
            assert not ended.is_set()
            connection.look_at_clock(connection._stalled_since + 61)
            await ended.wait()
            made.close()
        return written

    assert run(work()) < 1 << 24  # what the system buffers, and little more


def test_silence_and_slowness(run: Any) -> None:
    async def work() -> list[bytes]:
        got = []
        async with listening() as (listener, port):
            for sent, wait in ((b"", 21), (get()[:20], 21), (post(b"a" * 9)[:-1], 31), (get(), 76)):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(sent)
                data = await reader.readuntil(b"/ ") if sent == get() else b""
                await until(lambda: listener.connections)
                await asyncio.sleep(0.05)
                (connection,) = listener.connections
                assert connection._reader is not None
                since = connection._reader._since
                connection.look_at_clock(since + wait - 2)
                assert connection._ended_since is None
                connection.look_at_clock(since + wait)
                got.append(data + await reader.read())
                writer.close()
                await until(lambda: not listener.connections)
        return got

    nothing, head, body, idle = run(work())
    assert nothing == b""
    assert head.startswith(b"HTTP/1.1 408 ")
    assert body.startswith(b"HTTP/1.1 408 ")
    assert idle.endswith(b"/ ")


def test_a_refused_upload_can_be_read_about(run: Any) -> None:
    """The answer is not lost because the client was still sending."""

    async def work() -> bytes:
        async with listening(settings=Settings(max_body=1000)) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(post(b"a" * (8 << 20)))
            with contextlib.suppress(ConnectionError):
                await writer.drain()
            data = await reader.read()
            writer.close()
            return data

    assert run(work()).startswith(b"HTTP/1.1 413 ")


def test_the_idlest_makes_room(run: Any) -> None:
    async def work() -> None:
        async with listening(settings=Settings(max_connections=3)) as (listener, port):
            idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
            for reader, writer in idle[1:]:  # the first is idle since it came
                writer.write(get())
                await reader.readuntil(b"/ ")
            assert bodies(await tell(port, get(b"/new", LAST))) == [b"/new "]
            assert await idle[0][0].read() == b""
            idle[1][1].write(get(b"/still"))
            await idle[1][0].readuntil(b"/still ")
            for _, writer in idle:
                writer.close()

        busy = asyncio.Event()

        async def wait(request: Request, outlet: Outlet) -> None:
            await busy.wait()
            await echo(request, outlet)

        async with listening(wait, Settings(max_connections=1)) as (listener, port):
            working = asyncio.create_task(tell(port, get(b"/1", LAST)))
            await until(lambda: any(c.task for c in listener.connections))
            with contextlib.suppress(ConnectionError):
                assert await tell(port, get(b"/2", LAST)) == b""
            busy.set()
            assert bodies(await working) == [b"/1 "]

    run(work())


def test_draining(run: Any) -> None:
    """Idle connections are closed, busy ones after their answer, which says so."""

    async def work() -> tuple[bytes, bytes]:
        go = asyncio.Event()

        async def wait(request: Request, outlet: Outlet) -> None:
            if request.path == "/wait":
                await go.wait()
            await echo(request, outlet)

        async with listening(wait) as (listener, port):
            idle, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(get())
            await idle.readuntil(b"/ ")
            working = asyncio.create_task(tell(port, get(b"/wait")))
            await until(lambda: any(c.task for c in listener.connections))
            listener.close_listeners()
            rest = await idle.read()
            go.set()
            writer.close()
            with pytest.raises(OSError):
                await asyncio.open_connection("127.0.0.1", port)
            return rest, await working

    rest, answer = run(work())
    assert rest == b""
    assert b"connection: close" in answer
    assert answer.endswith(b"/wait ")


def test_an_error_of_the_handler(run: Any) -> None:
    async def fails(request: Request, outlet: Outlet) -> None:
        if request.path == "/begun":
            outlet.begin(200, (), 5)
            outlet.write(b"ab")
        raise ZeroDivisionError

    async def work() -> tuple[bytes, list[str]]:
        told: list[str] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: told.append(str(context["exception"])))
        async with listening(fails) as (_, port):
            data = await tell(port, get() + get(more=LAST))
            with contextlib.suppress(ConnectionError):
                await tell(port, get(b"/begun"))
        return data, told

    data, _ = run(work())
    assert data.count(b"HTTP/1.1 500 ") == 2
    assert b"Zero" not in data


def test_a_unix_socket_for_its_owner_alone(run: Any, tmp_path: Path) -> None:
    async def work() -> bytes:
        listener = Listener(Settings(), Keeper(), echo)
        path = tmp_path / "x.sock"
        assert await listener.listen("", 0, path, None) == 0
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        reader, writer = await asyncio.open_unix_connection(str(path))
        writer.write(get(more=LAST))
        data = await reader.read()
        writer.close()
        other = Listener(Settings(), Keeper(), echo)
        with pytest.raises(OSError, match="in use"):  # it is not taken away from who has it
            await other.listen("", 0, path, None)
        await listener.close()
        assert not path.exists()
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(path))  # as a server that was killed leaves it
        await other.listen("", 0, path, None)
        await other.close()
        return data

    assert bodies(run(work())) == [b"/ "]


def test_settings_can_be_replaced(run: Any) -> None:
    async def work() -> list[bytes]:
        async with listening() as (listener, port):
            before = await tell(port, post(b"a" * 100, more=LAST))
            listener.limits = replace(Settings(), max_body=10)
            return [before, await tell(port, post(b"a" * 100, more=LAST))]

    before, after = run(work())
    assert before.startswith(b"HTTP/1.1 200 ")
    assert after.startswith(b"HTTP/1.1 413 ")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and a certificate for localhost, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), False)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + made.public_bytes(serialization.Encoding.PEM)
    )
    return path


def test_tls(run: Any, certificate: Path) -> None:
    async def work() -> tuple[bytes, bytes, bytes]:
        ours = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        ours.load_cert_chain(certificate)
        theirs = ssl.create_default_context(cafile=str(certificate))
        listener = Listener(Settings(max_body=1000), Keeper(), echo)
        port = await listener.listen("127.0.0.1", 0, None, ours)
        told = []
        for sent in (get(b"/1") + post(b"a" * 100, more=LAST), post(b"a" * 2000)):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", port, ssl=theirs, server_hostname="localhost"
            )
            writer.write(sent)
            told.append(await reader.read())
            writer.close()
            with contextlib.suppress(ssl.SSLError, ConnectionError):
                await writer.wait_closed()
        plain = b""
        with contextlib.suppress(ConnectionError):
            plain = await tell(port, get(more=LAST))
        await listener.close()
        await until(lambda: not listener.connections)
        return told[0], told[1], plain

    answers, refused, plain = run(work())
    assert bodies(answers) == [b"/1 ", b"/x " + b"a" * 100]
    assert refused.startswith(b"HTTP/1.1 413 ")
    assert b"HTTP/1.1" not in plain
