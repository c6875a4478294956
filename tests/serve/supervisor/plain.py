"""The least that a supervisor needs of connections: one for each request."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from arriero.serve.http.interface import Address, Headers, UpstreamLostError


class PlainCall:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.status = 0
        self.headers: Headers = ()
        self._reader, self._writer = reader, writer

    async def head(self) -> None:
        try:
            text = await self._reader.readuntil(b"\r\n\r\n")
        except (OSError, asyncio.IncompleteReadError):
            self.close()
            raise UpstreamLostError("no head", sent=True) from None
        first, *lines = text.split(b"\r\n")[:-2]
        self.status = int(first.split()[1])
        pairs = (line.partition(b":") for line in lines)
        self.headers = tuple((name.lower(), value.strip()) for name, _, value in pairs)

    async def read(self) -> bytes:
        try:
            piece = await self._reader.read(1 << 16)
        except OSError:
            raise UpstreamLostError("broken", sent=True) from None
        if not piece:
            self.close()
        return piece

    def close(self) -> None:
        self._writer.transport.abort()


class PlainUpstream:
    """Speaks HTTP/1.0, so that an answer ends with its connection."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.calls: set[PlainCall] = set()

    async def send(
        self,
        method: str,
        target: bytes,
        headers: Headers,
        body: bytes,
        *,
        timeout: float | None = None,
    ) -> PlainCall:
        async with asyncio.timeout(timeout):
            try:
                if self.address.socket is not None:
                    reader, writer = await asyncio.open_unix_connection(str(self.address.socket))
                else:
                    reader, writer = await asyncio.open_connection("127.0.0.1", self.address.port)
            except OSError as error:
                raise UpstreamLostError(str(error), sent=False) from None
            call = PlainCall(reader, writer)
            try:
                key = f"Authorization: Bearer {self.address.key}".encode()
                own = [
                    b"Connection: close",
                    b"Host: engine",
                    b"Content-Length: %d" % len(body),
                    key,
                ]
                lines = [method.encode() + b" " + target + b" HTTP/1.1", *own, *_lines(headers)]
                writer.write(b"\r\n".join(lines) + b"\r\n\r\n" + body)
                await call.head()
            except BaseException:
                call.close()
                raise
        self.calls.add(call)
        return call

    def close(self) -> None:
        for call in self.calls:
            call.close()
        self.calls.clear()


def _lines(headers: Headers) -> Sequence[bytes]:
    return [name + b": " + value for name, value in headers]


async def answer(upstream: PlainUpstream, path: str, **body: Any) -> tuple[int, bytes]:
    """Status and body of one request."""
    call = await upstream.send("POST", path.encode(), (), json.dumps(body).encode())
    got = b""
    while piece := await call.read():
        got += piece
    return call.status, got
