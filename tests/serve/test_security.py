"""What a stranger may send to the front door, and what comes of it.

Behind it is an engine whose ledger shows what reached it.
"""

from __future__ import annotations

import asyncio
import json
import resource
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis

from arriero.gguf import write_model
from arriero.gguf.presets import tiny
from arriero.serve.control.endpoints import openapi
from tests.serve.fake_engine import Home
from tests.serve.front import Front
from tests.serve.load import Ask, all_of
from tests.serve.raw import send

KEY = "sk-test-0123456789"
HOST = b"Host: 127.0.0.1\r\n"
AUTH = b"Authorization: Bearer " + KEY.encode() + b"\r\n"
BODY = b'{"prompt":"job:raw:2 "}'
LENGTH = b"Content-Length: %d\r\n" % len(BODY)
POST = b"POST /completion HTTP/1.1\r\n" + HOST + AUTH
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n"
SMUGGLED = b"POST /completion HTTP/1.1\r\n" + HOST + AUTH + LENGTH + b"\r\n" + BODY


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    made = Home(tmp_path_factory.mktemp("engine"))
    made.install()
    return made


def command(home: Home, root: Path) -> list[str | Path]:
    model = write_model(root / "tiny.gguf", tiny("llama"))
    return [home.program, "-m", model, "-c", "4096", "-np", "2", "--port", "0"]


@pytest.fixture(scope="module")
def front(home: Home, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    root = tmp_path_factory.mktemp("front")
    (root / "key").write_text(f"{KEY}\n")
    options: list[str | Path] = [
        "--api-key-file",
        root / "key",
        "--max-body",
        "1MiB",
        "--max-header",
        "16KiB",
    ]
    options += ["--header-timeout", "1s", "--body-timeout", "1s"]
    with Front(root, command(home, root), options) as made:
        yield made


def reached(home: Home) -> int:
    """How many requests reached the engine."""
    return sum(line["what"] == "accepted" and line["job"] != "" for line in home.ledger())


MALFORMED: dict[str, bytes] = {
    "both lengths": CHUNKED + LENGTH + b"\r\n0\r\n\r\n" + SMUGGLED,
    "both lengths, the other way": POST
    + LENGTH
    + b"Transfer-Encoding: chunked\r\n\r\n"
    + BODY
    + SMUGGLED,
    "two lengths": POST + LENGTH + b"Content-Length: 0\r\n\r\n" + BODY,
    "two lengths in one": POST + b"Content-Length: 22, 0\r\n\r\n" + BODY,
    "a length with a sign": POST + b"Content-Length: +22\r\n\r\n" + BODY,
    "a negative length": POST + b"Content-Length: -1\r\n\r\n" + BODY,
    "a hexadecimal length": POST + b"Content-Length: 0x16\r\n\r\n" + BODY,
    "a length that overflows": POST + b"Content-Length: 18446744073709551638\r\n\r\n" + BODY,
    "an empty length": POST + b"Content-Length:\r\n\r\n" + BODY,
    "chunked twice": POST + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "not chunked last": POST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "an unknown coding": POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "a coding with a vertical tab": POST + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "a coding of two lines": POST
    + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    "a space before the colon": POST + b"Content-Length : 22\r\n\r\n" + BODY,
    "a folded line": POST + LENGTH + b"X-A: b\r\n c\r\n\r\n" + BODY,
    "a folded coding": POST + b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
    "NUL in a value": POST + LENGTH + b"X-A: b\0c\r\n\r\n" + BODY,
    "NUL in a name": POST + LENGTH + b"X\0A: b\r\n\r\n" + BODY,
    "a bare LF": (POST + LENGTH + b"\r\n").replace(b"\r\n", b"\n") + BODY,
    "one bare LF": POST + LENGTH + b"X-A: b\nX-B: c\r\n\r\n" + BODY,
    "a bare CR": POST + LENGTH + b"X-A: b\rX-B: c\r\n\r\n" + BODY,
    "no colon": POST + LENGTH + b"nothing\r\n\r\n" + BODY,
    "no name": POST + LENGTH + b": value\r\n\r\n" + BODY,
    "a name with a space": POST + LENGTH + b"X A: b\r\n\r\n" + BODY,
    "a line before the first": b"X-A: b\r\n" + SMUGGLED,
    "no version": b"GET /props\r\n\r\n",
    "version 0.9": b"GET /props HTTP/0.9\r\n" + HOST + AUTH + b"\r\n",
    "version 1.2": b"GET /props HTTP/1.2\r\n" + HOST + AUTH + b"\r\n",
    "version 2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 200,
    "no host": b"GET /props HTTP/1.1\r\n" + AUTH + b"\r\n",
    "two hosts": b"GET /props HTTP/1.1\r\n" + HOST + b"Host: other\r\n" + AUTH + b"\r\n",
    "absolute form": b"GET http://127.0.0.1/props HTTP/1.1\r\n" + HOST + AUTH + b"\r\n",
    "authority form": b"CONNECT 127.0.0.1:22 HTTP/1.1\r\n" + HOST + AUTH + b"\r\n",
    "asterisk form": b"GET * HTTP/1.1\r\n" + HOST + AUTH + b"\r\n",
    "no slash": b"GET props HTTP/1.1\r\n" + HOST + AUTH + b"\r\n",
    "a tab in the path": b"GET /pro\tps HTTP/1.1\r\n" + HOST + AUTH + b"\r\n",
    "NUL in the path": b"GET /pro\0ps HTTP/1.1\r\n" + HOST + AUTH + b"\r\n",
    "a method of odd signs": b"GE{T /props HTTP/1.1\r\n" + HOST + AUTH + b"\r\n",
    "a chunk without a size": CHUNKED + b"\r\n\r\nabc\r\n0\r\n\r\n",
    "a chunk of odd size": CHUNKED + b"\r\nzz\r\nabc\r\n0\r\n\r\n",
    "a chunk of negative size": CHUNKED + b"\r\n-1\r\nabc\r\n0\r\n\r\n",
    "a chunk with 0x": CHUNKED + b"\r\n0x16\r\n" + BODY + b"\r\n0\r\n\r\n",
    "a chunk that overflows": CHUNKED + b"\r\n10000000000000016\r\n" + BODY + b"\r\n0\r\n\r\n",
    "a chunk longer than said": CHUNKED + b"\r\n5\r\n" + BODY + b"\r\n0\r\n\r\n",
    "chunks ended by LF": CHUNKED + b"\r\n%x\n" % len(BODY) + BODY + b"\n0\n\n",
    "a chunk's space": CHUNKED + b"\r\n %x\r\n" % len(BODY) + BODY + b"\r\n0\r\n\r\n",
    "chunked in 1.0": CHUNKED.replace(b"HTTP/1.1", b"HTTP/1.0")
    + b"\r\n%x\r\n" % len(BODY)
    + BODY
    + b"\r\n0\r\n\r\n",
    "an expectation": POST + LENGTH + b"Expect: tea\r\n\r\n" + BODY,
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed(name: str, front: Front, home: Home) -> None:
    before = reached(home)
    back = send(front.port, MALFORMED[name])
    assert back.closed, back
    assert len(back.statuses) <= 1, back.data
    assert all(400 <= status < 600 for status in back.statuses), back.data
    assert reached(home) == before
    front.status(KEY)


FINE: dict[str, tuple[bytes, list[int]]] = {
    "a length": (SMUGGLED, [200]),
    "two spaces": (SMUGGLED.replace(b"POST /", b"POST  /", 1), [200]),
    "chunks": (CHUNKED + b"\r\n%x\r\n" % len(BODY) + BODY + b"\r\n0\r\n\r\n", [200]),
    "chunks of one byte": (
        CHUNKED
        + b"\r\n"
        + b"".join(b"1\r\n%c\r\n" % byte for byte in BODY)
        + b"0\r\n\r\n",
        [200],
    ),
    "a chunk's extension": (
        CHUNKED + b"\r\n%x;a=b\r\n" % len(BODY) + BODY + b"\r\n0\r\n\r\n", [200]
    ),
    "trailers": (
        CHUNKED + b"\r\n%x\r\n" % len(BODY) + BODY + b"\r\n0\r\nX-Trailer: 1\r\n\r\n", [200]
    ),
    "one after the other": (SMUGGLED * 3, [200, 200, 200]),
    "an expectation": (POST + LENGTH + b"Expect: 100-continue\r\n\r\n" + BODY, [100, 200]),
}  # fmt: skip


@pytest.mark.parametrize("name", FINE)
def test_well_formed(name: str, front: Front, home: Home) -> None:
    sent, statuses = FINE[name]
    before = reached(home)
    back = send(front.port, sent)
    # the engine need not be asked to continue if the body is there already
    assert [s for s in back.statuses if s != 100] == [s for s in statuses if s != 100], back.data
    assert reached(home) == before + len([s for s in statuses if s == 200])


@pytest.mark.parametrize("step", [1, 7])
def test_byte_by_byte(step: int, front: Front) -> None:
    pieces = [SMUGGLED[at : at + step] for at in range(0, len(SMUGGLED), step)]
    assert send(front.port, *pieces).statuses == [200]


TOO_MUCH = {
    "a header": (POST + LENGTH + b"X-A: " + b"a" * 20000 + b"\r\n\r\n" + BODY, {431}),
    "many headers": (POST + LENGTH + b"X-A: b\r\n" * 5000 + b"\r\n" + BODY, {431}),
    "a header without an end": (POST + b"X-A: " + b"a" * (1 << 20), {431}),
    "a path": (
        b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\n" + HOST + AUTH + b"\r\n", {414, 431}
    ),
    "a body": (POST + b"Content-Length: 2000000\r\n\r\n" + b"a" * 2000000, {413}),
    "a body that is only said": (POST + b"Content-Length: 2000000\r\n\r\n", {413}),
    "a body in chunks": (
        CHUNKED + b"\r\n" + (b"8000\r\n" + b"a" * 0x8000 + b"\r\n") * 64, {413}
    ),
    "an extension": (CHUNKED + b"\r\n1;" + b"a" * 200000 + b"\r\na\r\n0\r\n\r\n", {400, 413, 431}),
    "trailers": (
        CHUNKED + b"\r\n1\r\na\r\n0\r\n" + b"X-A: b\r\n" * 20000 + b"\r\n", {400, 413, 431}
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TOO_MUCH)
def test_too_much(name: str, front: Front, home: Home) -> None:
    sent, statuses = TOO_MUCH[name]
    before = reached(home)
    back = send(front.port, sent)
    assert back.closed, back
    # a sender that goes on after the refusal may be cut off before it reads it
    assert {*back.statuses} <= statuses, back.data
    assert reached(home) == before
    front.status(KEY)


@pytest.mark.slow
def test_too_slow(front: Front, home: Home) -> None:
    before = reached(home)
    for sent in (POST[:20], POST + LENGTH, POST + LENGTH + b"\r\n" + BODY[:5]):
        back = send(front.port, sent)
        assert back.closed, (sent, back)
        assert {*back.statuses} <= {408}, (sent, back)
    assert reached(home) == before


@pytest.mark.slow
def test_drop_by_drop(front: Front) -> None:
    """Each byte comes in time, the whole does not."""

    def taken(made: socket.socket) -> bool:
        time.sleep(0.1)
        try:
            made.sendall(b"a")
        except OSError:
            return False
        return True

    with socket.create_connection(("127.0.0.1", front.port)) as made:
        assert not all(taken(made) for _ in range(300))


SECRET_PATHS = (
    "/props", "/arriero/status", "/arriero/", "/arriero", "/arriero/metrics", "/arriero/incidents",
    "/arriero/log", "//arriero/status", "/ARRIERO/status", "/arriero//status",
    "/arriero/%73tatus", "/%61rriero/status", "/health/../arriero/status",
    "/health/%2e%2e/props", "/health/../props", "/v1/models/../props", "/health;x/../props",
    "/health%00/../props", "/health?/../props&", "/./props", "/props?key=1", "/props#health",
    "/health/..%2fprops", "\\props", "/health\\..\\props", "/arriero/../props",
)  # fmt: skip


@pytest.mark.parametrize(
    "path",
    [*SECRET_PATHS[:6], *(pytest.param(one, marks=pytest.mark.slow) for one in SECRET_PATHS[6:])],
)
def test_nothing_without_the_key(path: str, front: Front) -> None:
    for more in ("", "Authorization: Bearer sk-other\r\n", f"Authorization: Basic {KEY}\r\n"):
        raw = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{more}Connection: close\r\n\r\n"
        back = send(front.port, raw.encode())
        if path != "/arriero/":  # the empty page, which asks for the key, knows these words
            for word in (b"total_slots", b"restarts", b"arriero_", b"incidents", b"llama_server"):
                assert word not in back.data, back.data
        if not path.startswith("/health?"):
            assert not {*back.statuses} & {200, 304}, back.data


BROWSER = {
    "another origin": b"Host: 127.0.0.1:%d\r\nOrigin: https://evil.example\r\n",
    "no origin": b"Host: 127.0.0.1:%d\r\nOrigin: null\r\n",
    "another name": b"Host: evil.example:%d\r\nOrigin: http://evil.example:%d\r\n",
    "another name, no origin": b"Host: evil.example:%d\r\nAccept-Language: en\r\n",
}


@pytest.mark.parametrize("name", BROWSER)
@pytest.mark.parametrize("path", ["/arriero/status", "/props", "/v1/models", "/health"])
def test_other_origins_read_nothing(name: str, path: str, front: Front) -> None:
    head = BROWSER[name].replace(b"%d", str(front.port).encode())
    for method in ("GET", "OPTIONS"):
        first = f"{method} {path} HTTP/1.1\r\n".encode()
        back = send(front.port, first + head + AUTH + b"Connection: close\r\n\r\n")
        lines = back.data.lower().split(b"\r\n\r\n")[0].split(b"\r\n")
        assert not [line for line in lines if line.startswith(b"access-control-allow")], back.data
        if path != "/health":
            assert not {*back.statuses} & {200, 204}, back.data


def test_hop_by_hop_headers_stay_here(front: Front, home: Home) -> None:
    more = b"Connection: keep-alive, X-Secret\r\nX-Secret: 1\r\nTE: trailers\r\nUpgrade: h2c\r\n"
    more += b"Proxy-Authorization: Basic x\r\nKeep-Alive: timeout=100\r\nX-Kept: 2\r\n"
    more += b"X-Forwarded-For: 1.2.3.4\r\n"
    assert send(front.port, POST + more + LENGTH + b"\r\n" + BODY).statuses == [200]
    got = [line for line in home.ledger() if line["what"] == "accepted" and line["job"]][-1]
    headers = got["headers"]
    assert headers["x-kept"] == "2"
    for gone in ("x-secret", "te", "upgrade", "proxy-authorization", "keep-alive"):
        assert gone not in headers, headers
    assert KEY not in json.dumps(headers)


def test_keys_and_prompts_are_told_to_nobody(front: Front, home: Home, tmp_path: Path) -> None:
    ask = Ask(1, "chat", "job:x:3 my secret prompt is Zanzibar", True)
    (seen,) = asyncio.run(all_of(front.url, [ask], 1, headers={"Authorization": f"Bearer {KEY}"}))
    assert seen.outcome == "answered"
    told = [front.said, json.dumps(front.events)]
    told += [
        front.get(f"/arriero/{path}", KEY).decode()
        for path in ("status", "incidents", "metrics", "", "log")
    ]
    for text in told:
        assert "Zanzibar" not in text
        assert KEY not in text


def test_a_thousand_idle_connections(front: Front) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    idle = []
    try:
        for _ in range(1000):
            idle.append(socket.create_connection(("127.0.0.1", front.port)))
        assert send(front.port, SMUGGLED).statuses == [200]
        assert front.status(KEY)["state"] == "ready"
    finally:
        for one in idle:
            one.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.slow
def test_whoever_does_not_read_holds_no_slot(home: Home, tmp_path: Path) -> None:
    """Two streams that nobody reads, and two slots; a third client is answered all the same."""
    body = json.dumps({"prompt": "job:slow:200000 ", "stream": True, "temperature": 0}).encode()
    head = b"POST /completion HTTP/1.1\r\n" + HOST + b"Content-Length: %d\r\n\r\n" % len(body)
    with Front(tmp_path, command(home, tmp_path), ["--write-timeout", "2s"]) as front:
        idle = []
        for _ in range(2):
            made = socket.socket()
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            made.connect(("127.0.0.1", front.port))
            made.sendall(head + body)
            idle.append(made)
        back = send(front.port, SMUGGLED.replace(AUTH, b""), most=40)
        assert back.statuses == [200]
        for made in idle:
            made.close()


schema = schemathesis.openapi.from_dict(openapi())


@schema.parametrize()
def test_control_endpoints_have_no_odd_side(case: schemathesis.Case[Any], front: Front) -> None:
    answer = case.call(base_url=front.url, headers={"Authorization": f"Bearer {KEY}"})
    assert answer.status_code < 500, answer.text
    assert "Traceback" not in answer.text
    assert "/root" not in answer.text


def test_the_server_is_still_fine(front: Front) -> None:
    status = front.settled(KEY)
    assert status["state"] == "ready"
    assert status["engine"]["restarts"] == 0
    assert status["requests"]["lost"] == 0
