"""Bytes of a client become requests, in whatever pieces they come, or are refused."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.serve.http.interface import Headers, Request
from arriero.serve.http.reading import Phase, Reader
from arriero.serve.http.refused import RefusedError
from arriero.serve.http.rules import Held
from arriero.serve.settings import Settings

SETTINGS = Settings(max_body=1000, max_header=1000, header_timeout=20, body_timeout=30)
HOST = b"Host: a\r\n"


class Keeper:
    """Lets in everything but ``/secret``."""

    def admit(self, method: str, path: str, headers: Headers) -> RefusedError | None:
        return RefusedError(401, "no") if path == "/secret" else None

    def has_key(self, headers: Headers) -> bool:
        return True

    def client_of(self, headers: Headers, address: str) -> str:
        return address

    def answer_headers(self, path: str, headers: Headers) -> Headers:
        return ()

    def error(self, path: str, status: int, message: str) -> tuple[Headers, bytes]:
        return (), message.encode()


class Read:
    """What came out of some bytes: requests, and the refusal that ended it."""

    def __init__(self, *pieces: bytes, settings: Settings = SETTINGS) -> None:
        self.found: list[Request | RefusedError] = []
        self.held = Held()
        self.reader = Reader(settings, Keeper(), self.held, "1.2.3.4", self.found.append)
        self.end: RefusedError | None = None
        for piece in pieces:
            try:
                self.reader.feed(piece)
            except RefusedError as refused:
                self.end = refused
                break

    @property
    def requests(self) -> list[Request]:
        return [one for one in self.found if isinstance(one, Request)]

    @property
    def status(self) -> int | None:
        return None if self.end is None else self.end.status


def get(target: bytes = b"/", more: bytes = b"") -> bytes:
    return b"GET " + target + b" HTTP/1.1\r\n" + HOST + more + b"\r\n"


def post(body: bytes, target: bytes = b"/x", more: bytes = b"") -> bytes:
    length = b"Content-Length: %d\r\n" % len(body)
    return b"POST " + target + b" HTTP/1.1\r\n" + HOST + more + length + b"\r\n" + body


def chunked(*pieces: bytes, trailer: bytes = b"") -> bytes:
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    head = b"POST /x HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n"
    return head + chunks + b"0\r\n" + trailer + b"\r\n"


def test_a_request() -> None:
    (request,) = Read(post(b"hello", b"/v1/x?a=b", b"X-A: b\r\n")).requests
    assert request == Request(
        "POST", b"/v1/x?a=b", "/v1/x",
        ((b"host", b"a"), (b"x-a", b"b"), (b"content-length", b"5")), b"hello", "1.2.3.4",
    )  # fmt: skip


def test_a_path_is_what_the_engine_takes_it_for() -> None:
    (request,) = Read(get(b"/%73lots%2f0?x=%20")).requests
    assert (request.target, request.path) == (b"/slots/0?x=%20", "/slots/0")
    (refused,) = Read(get(b"/%73ecret")).found
    assert isinstance(refused, RefusedError), "who lets in sees the same path"
    assert [Read(get(target)).status for target in (b"/%zz", b"/%00", b"/a#b")] == [400] * 3


WHOLE = post(b"one") + chunked(b"tw", b"o", trailer=b"X-T: 1\r\n") + get(b"/3?x") + post(b"4")


@given(st.lists(st.integers(0, len(WHOLE)), max_size=8))
def test_pieces_do_not_matter(cuts: list[int]) -> None:
    ends = sorted({0, len(WHOLE), *cuts})
    read = Read(*(WHOLE[a:b] for a, b in pairwise(ends)))
    assert [r.body for r in read.requests] == [b"one", b"two", b"", b"4"]
    assert [r.path for r in read.requests] == ["/x", "/x", "/3", "/x"]
    assert read.end is None
    assert read.reader.phase is Phase.IDLE
    assert read.held.bytes == 7  # those who answer give it back


REFUSED: dict[str, tuple[bytes, int]] = {
    "two lengths": (post(b"hello", more=b"Content-Length: 5\r\n"), 400),
    "length and chunks": (post(b"0\r\n\r\n", more=b"Transfer-Encoding: chunked\r\n"), 400),
    "chunks in 1.0": (chunked(b"a").replace(b"/1.1", b"/1.0"), 400),
    "chunks of gzip": (chunked(b"a").replace(b"chunked", b"gzip, chunked"), 400),
    "chunked twice": (chunked(b"a").replace(b"chunked", b"chunked, chunked"), 400),
    "no host": (get().replace(HOST, b""), 400),
    "two hosts": (get(more=HOST), 400),
    "a proxy's form": (get(b"http://a/b"), 400),
    "CONNECT": (b"CONNECT a:1 HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    "every path": (b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    "a fragment": (get(b"/a#b"), 400),
    "version 2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    "version 0.9": (b"GET / HTTP/0.9\r\n" + HOST + b"\r\n", 505),
    "an expectation": (post(b"a", more=b"Expect: tea\r\n"), 417),
    "a protocol with a body": (post(b"a", more=b"Connection: upgrade\r\nUpgrade: h2c\r\n"), 400),
    "a long address": (get(b"/" + b"a" * 20000), 414),
    "a long header": (get(more=b"X: " + b"a" * 2000 + b"\r\n"), 431),
    "many headers": (get(more=b"X: a\r\n" * 300), 431),
    "a long trailer": (chunked(b"a", trailer=b"X: " + b"a" * 2000 + b"\r\n"), 431),
    "a long body": (post(b"a" * 1001), 413),
    "a long body in chunks": (chunked(b"a" * 600, b"a" * 600), 413),
    "a long body without key": (post(b"a", b"/secret").replace(b": 1\r", b": 1048577\r"), 401),
    "a body that asks first": (post(b"a", b"/secret", b"Expect: 100-continue\r\n"), 401),
}  # fmt: skip


@pytest.mark.parametrize("step", [1, 1 << 20])
@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, step: int) -> None:
    sent, status = REFUSED[name]
    read = Read(*(sent[at : at + step] for at in range(0, len(sent), step)))
    assert read.status == status or {status, read.status} == {414, 431}
    assert read.end is not None
    assert read.end.final
    assert read.found == []


@pytest.mark.parametrize("endless", [
    b"GET / HTTP/1.1\r\nHost: ",
    b"GET / HTTP/1.1\r\n" + HOST + b"X-",
    b"GET /",
    chunked(b"a").partition(b"0\r\n")[0] + b"1;x=",
    chunked(b"a").partition(b"0\r\n")[0] + b"0\r\nX-T: ",
])  # fmt: skip
def test_what_never_ends_is_not_kept(endless: bytes) -> None:
    read = Read(endless, *[b"a" * 100] * 400)
    assert read.status in (431, 414)


def test_a_body_in_tiny_chunks_is_no_overhead() -> None:
    sent = chunked(*[b"a"] * 900)
    read = Read(*(sent[at : at + 5] for at in range(0, len(sent), 5)))
    assert [len(r.body) for r in read.requests] == [900]


def test_a_refusal_does_not_end_a_connection_that_can_go_on() -> None:
    read = Read(post(b"a" * 900, b"/secret") + get(b"/next"))
    refused, request = read.found
    assert isinstance(refused, RefusedError)
    assert not refused.final
    assert isinstance(request, Request)
    assert request.path == "/next"
    assert read.held.bytes == 0  # its body was not kept


def test_nothing_is_read_after_the_last_request() -> None:
    read = Read(get(b"/1", b"Connection: close\r\n") + get(b"/2"), get(b"/3"))
    assert [r.path for r in read.requests] == ["/1"]
    assert read.end is None


def test_another_protocol_is_not_taken() -> None:
    asked = get(b"/1", b"Connection: upgrade\r\nUpgrade: websocket\r\n")
    read = Read((asked + get(b"/2")) * 500)
    assert [r.path for r in read.requests] == ["/1", "/2"] * 500


def test_many_bodies_at_once() -> None:
    settings = replace(SETTINGS, max_body=1 << 25)
    read = Read(post(b"a" * (1 << 25)) * 5, settings=settings)
    assert read.status == 503
    assert len(read.requests) == 4
    read.reader.drop()
    assert read.held.bytes == 4 << 25


def test_the_clock_of_a_head_and_of_a_body() -> None:
    read = Read(get()[:-2])
    start = read.reader._begun
    assert read.reader.late(start + 19) is None
    late = read.reader.late(start + 21)
    assert late is not None
    assert late.status == 408

    read = Read(post(b"a" * 900)[:-1])
    start = read.reader._begun
    assert read.reader.late(start + 29) is None
    assert read.reader.late(start + 31) is not None
    read.reader._since = start + 200  # a byte just came, but too few came on the whole
    assert read.reader.late(start + 201) is not None

    read = Read(get())
    assert read.reader.late(start + 10000) is None  # idle: nobody waits for it


@given(st.binary(max_size=300), st.integers(0, len(WHOLE)), st.integers(0, 20))
def test_nothing_but_a_refusal_comes_of_nonsense(junk: bytes, at: int, cut: int) -> None:
    sent = WHOLE[:at] + junk + WHOLE[at + cut :]
    read = Read(sent, b"\r\n\r\n")
    assert all(len(r.body) <= 1000 for r in read.requests)
    read.reader.drop()
    assert read.held.bytes == sum(len(r.body) for r in read.requests)
