"""Which headers are passed on, and how a head is written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Final

from arriero.serve.http.interface import Headers

HOP_BY_HOP: Final = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"http2-settings",
    }
)
_OWN: Final = frozenset(
    {b"content-length", b"expect", b"authorization", b"x-api-key", b"origin", b"host"}
)
"""Written anew for the engine. It reads no host, and answers any origin if it sees one."""
_CORS: Final = b"access-control-"
_REASONS: Final = {
    int(status): f"HTTP/1.1 {int(status)} {status.phrase}\r\n".encode() for status in HTTPStatus
}
_TOKEN: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")


def for_engine(method: str, target: bytes, headers: Headers, length: int, key: str) -> bytes:
    """The head of a request to the engine."""
    lines = [method.encode() + b" " + target + b" HTTP/1.1\r\nHost: localhost\r\n"]
    for name, value in headers:
        if name not in _OWN:
            lines.append(name + b": " + value + b"\r\n")
    if key:
        lines.append(b"Authorization: Bearer " + key.encode() + b"\r\n")
    if length or method in {"POST", "PUT", "PATCH"}:
        lines.append(b"Content-Length: %d\r\n" % length)
    lines.append(b"\r\n")
    return b"".join(lines)


def from_client(headers: Sequence[tuple[bytes, bytes]]) -> Headers:
    """Those of a request that go on: what the connection header names is left out, too."""
    named = listed(headers, b"connection")
    return tuple(
        (name, value) for name, value in headers if name not in HOP_BY_HOP and name not in named
    )


def for_client(headers: Sequence[tuple[bytes, bytes]]) -> Headers:
    """Those of the engine's answer that go on. It lets any origin read: that is ours to say."""
    named = listed(headers, b"connection")
    return tuple(
        (name, value)
        for name, value in headers
        if name not in HOP_BY_HOP and name not in named and not name.startswith(_CORS)
    )


def listed(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> frozenset[bytes]:
    """The words of a header that is a list, in lower case."""
    return frozenset(
        word.strip().lower()
        for key, value in headers
        if key == name
        for word in value.split(b",")
        if word.strip()
    )


def head_of_answer(
    status: int,
    headers: Iterable[tuple[bytes, bytes]],
    *,
    length: int | None,
    close: bool,
    chunked: bool = False,
) -> bytes:
    """The head of an answer to a client.

    Without a length and without chunks the body ends with the connection.
    """
    lines = [_REASONS.get(status) or b"HTTP/1.1 %d \r\n" % status]
    for name, value in headers:
        if name not in HOP_BY_HOP and name != b"content-length" and is_clean(name, value):
            lines.append(name + b": " + value + b"\r\n")
    if length is not None:
        lines.append(b"content-length: %d\r\n" % length)
    elif chunked:
        lines.append(b"transfer-encoding: chunked\r\n")
    lines.append(b"connection: close\r\n\r\n" if close else b"connection: keep-alive\r\n\r\n")
    return b"".join(lines)


def is_clean(name: bytes, value: bytes) -> bool:
    """Whether a header cannot end itself and begin another."""
    return _TOKEN.fullmatch(name) is not None and not any(c in value for c in (b"\r", b"\n", b"\0"))
