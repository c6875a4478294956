"""Read a file over HTTP in ranges.

A header is a small part of a model, but its size is not known beforehand. It is requested in
growing blocks, so that few requests read it and at most one block beyond its end is read. Data that
the reader skips (scores, token types) is not requested.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import SplitResult

import aiohttp

from arriero.base.errors import ArrieroError, ModelError
from arriero.base.sizes import MIB
from arriero.gguf.addresses import origin, parsed, shown
from arriero.gguf.client import Client
from arriero.gguf.reader import first_part
from arriero.gguf.source import Source

FIRST_BLOCK: Final = MIB
LATER_PART_BLOCK: Final = MIB // 8
"""The first block of a later part of a split set, whose header has no vocabulary."""
LARGEST_BLOCK: Final = 4 * MIB
_LARGEST_FILE: Final = 1 << 44
"""Far above any model, and the largest file that many file systems allow."""

_RANGE: Final = re.compile(r"bytes (\d{1,19})-(\d{1,19})/(\d{1,19})\Z")
_EXPIRED: Final = frozenset({400, 401, 403, 404, 410})


def open_url(spec: str, hub: SplitResult, environ: Mapping[str, str]) -> Source:
    """Open an ``http(s)://`` address; on the hub it may be the web page of the file."""
    url = parsed(spec)
    path = url.path
    if origin(url) == origin(hub):
        path = re.sub(r"\A(/[^/]+/[^/]+)/blob/", r"\1/resolve/", path)
    directory, _, name = path.rpartition("/")
    url = url._replace(path=f"{directory}/{first_part(name)}", fragment="")
    client = Client(url, hub, environ)
    with client.closed_on_error():
        return RemoteSource(client, url, shown(url))


class RemoteSource:
    """A file on a server. One block of it is kept in memory.

    A server that does not support ranges is read from the start, as far as needed, over one
    connection.

    Raises:
        NotFoundError, ModelError: As :func:`~arriero.gguf.remote.open_model`.
    """

    def __init__(
        self, client: Client, url: SplitResult, name: str, *, part_of: RemoteSource | None = None
    ) -> None:
        self._client, self._url, self.name = client, url, name
        self._whole = part_of is None
        self._place = url
        self.size = 0
        self._version: tuple[str, int] | None = None
        self._stream: aiohttp.ClientResponse | None = None
        self._position = 0
        """The position in the stream of a server without ranges."""
        self._start, self._data = 0, b""
        self._block = FIRST_BLOCK if part_of is None else LATER_PART_BLOCK
        self._taken = 0
        self._fetch(self._block)

    @property
    def requests(self) -> int:
        return self._client.requests

    @property
    def bytes_read(self) -> int:
        return self._client.bytes_read

    def read(self, offset: int, length: int, ahead: int = 0) -> bytes:
        length = max(0, min(length, self.size - offset))
        end = self._start + len(self._data)
        if self._start <= offset <= end:
            self._data = self._data[offset - self._start :]
        else:
            self._data = b""
        self._start = offset
        while len(self._data) < length:
            self._fetch(min(max(length - len(self._data), self._block), self.size))
        return self._data[: length + ahead]

    def sibling(self, name: str) -> RemoteSource:
        """The file of that name in the same place, over the same connection.

        ``name`` is quoted as in ``self.name``.
        """

        def beside(path: str) -> str:
            return f"{path.rpartition('/')[0]}/{name}"

        url = self._url._replace(path=beside(self._url.path))
        return RemoteSource(self._client, url, beside(self.name), part_of=self)

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None
        if self._whole:
            self._client.close()

    def _fetch(self, length: int) -> None:
        """Add at least one and at most so many bytes to those in memory."""
        at = self._start + len(self._data)
        data = self._client.run(self.name, self._bytes(at, length))
        if not data and at < self.size:
            raise ModelError(f"{self.name}: the answer ends at byte {at}", hint="try again")
        self._data += data
        self._taken += len(data)
        self._block = min(LARGEST_BLOCK, max(self._block, self._taken))

    async def _bytes(self, at: int, length: int) -> bytes:
        if self._stream is not None and self._position > at:
            self._stream.close()
            self._stream = None
        if self._stream is None:
            response = await self._answer(at, length)
            if response.status == 206:
                async with response:
                    return await self._client.take(response, length, self.name)
            self._stream, self._position = response, 0
        while self._position < at and await self._advance(min(at - self._position, MIB)):
            pass
        return await self._advance(length)

    async def _advance(self, length: int) -> bytes:
        assert self._stream is not None  # noqa: S101  for the type checker
        data = await self._client.take(self._stream, length, self.name)
        self._position += len(data)
        return data

    async def _answer(self, at: int, length: int) -> aiohttp.ClientResponse:
        """The range, or the whole file if the server has no ranges; of the same file as before."""
        wanted = {"Range": f"bytes={at}-{at + length - 1}"}
        response, place = await self._client.get(self._place, self.name, wanted)
        if response.status in _EXPIRED and self._place is not self._url:
            response.close()  # the target of a redirect may be valid for an hour only
            response, place = await self._client.get(self._url, self.name, wanted)
        try:
            self._check(response, place, at, length)
        except ArrieroError:
            response.close()
            raise
        self._place = place
        return response

    def _check(
        self, response: aiohttp.ClientResponse, place: SplitResult, at: int, length: int
    ) -> None:
        headers = response.headers
        if response.status == 206:
            said = _RANGE.match(headers.get("Content-Range", ""))
            first, last, size = map(int, said.groups()) if said else (-1, -1, -1)
            if first != at or not at <= last < min(at + length, size):
                raise self._wrong(f"{place.hostname} sends another range than requested")
        elif response.status == 200:
            if response.content_length is None:
                raise self._wrong(f"{place.hostname} supports no ranges and gives no size")
            size = response.content_length
        else:
            raise self._client.refusal(response.status, self.name, place)
        if headers.get("Content-Encoding", "identity") != "identity":
            raise self._wrong(f"{place.hostname} sends it compressed")
        if size > _LARGEST_FILE:
            raise self._wrong(f"{place.hostname} claims {size} bytes: no model is that large")
        version = (headers.get("ETag") or headers.get("Last-Modified") or "", size)
        if self._version not in (None, version):
            raise ModelError(f"{self.name}: the file changed while it was read", hint="try again")
        self._version, self.size = version, size

    def _wrong(self, text: str) -> ModelError:
        hint = "download it, or take it from another server"
        return ModelError(f"{self.name}: {text}", hint=hint, id="model-remote")
