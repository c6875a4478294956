"""Read a file over HTTP in ranges.

A header is a small part of a model, but its size is not known beforehand. It is requested in
growing blocks, so that few requests read it and at most one block beyond its end is read. Data that
the reader skips (scores, token types) is not requested.

This module, not the HTTP library, handles redirects and credentials: a token, a password or a
signed query is sent only to the origin for which it was given, and appears in no message.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import os
import re
import socket
import time
from base64 import b64encode
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, TypeVar
from urllib.parse import SplitResult, quote, unquote, urljoin, urlsplit, urlunsplit
from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]

import aiohttp
from aiohttp.abc import ResolveResult
from yarl import URL

from arriero.base.errors import ArrieroError, ModelError, NotFoundError, UsageError
from arriero.base.secret import without_secrets
from arriero.base.sizes import MIB, human
from arriero.gguf.reader import first_part
from arriero.gguf.source import Source

_T = TypeVar("_T")

FIRST_BLOCK: Final = MIB
LATER_PART_BLOCK: Final = MIB // 8
"""The first block of a later part of a split set, whose header has no vocabulary."""
LARGEST_BLOCK: Final = 4 * MIB
_MAX_BYTES: Final = 256 * MIB
_MAX_REQUESTS: Final = 2048
_LARGEST_FILE: Final = 1 << 44
"""Far above any model, and the largest file that many file systems allow."""
_MAX_JSON: Final = 4 * MIB
_MAX_REDIRECTS: Final = 5
_CONNECT_SECONDS: Final = 15.0
_SILENT_SECONDS: Final = 30.0
_ANSWER_SECONDS: Final = 120.0
_ALL_SECONDS: Final = 600.0

_RANGE: Final = re.compile(r"bytes (\d{1,19})-(\d{1,19})/(\d{1,19})\Z")
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_EXPIRED: Final = frozenset({400, 401, 403, 404, 410})


def open_url(spec: str, hub: SplitResult, environ: Mapping[str, str]) -> Source:
    """Open an ``http(s)://`` address; on the hub it may be the web page of the file."""
    url = parsed(spec)
    path = url.path
    if _origin(url) == _origin(hub):
        path = re.sub(r"\A(/[^/]+/[^/]+)/blob/", r"\1/resolve/", path)
    directory, _, name = path.rpartition("/")
    url = url._replace(path=f"{directory}/{first_part(name)}", fragment="")
    client = Client(url, hub, environ)
    with client.closed_on_error():
        return RemoteSource(client, url, _shown(url))


# --- addresses ----------------------------------------------------------------------------------


def parsed(text: str) -> SplitResult:
    """Parse an address and quote the characters that need it and are not quoted yet.

    Raises:
        UsageError: It is not an HTTP address.
    """
    try:
        url = urlsplit(quote(text, safe="%/:=&?~#+!$,;'@()*[]"))
        usable = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        usable = False
    if not usable:
        shown = without_secrets(text.rpartition("@")[2].partition("?")[0])
        raise UsageError(f"{shown} is not an address", hint="write https://host/path/file.gguf")
    return url


def _origin(url: SplitResult) -> tuple[str, str | None, int]:
    return url.scheme, url.hostname, url.port or (443 if url.scheme == "https" else 80)


def _bare(url: SplitResult) -> SplitResult:
    """The address without user and password."""
    return url._replace(netloc=url.netloc.rpartition("@")[2])


def _shown(url: SplitResult) -> str:
    """The address in a form that anybody may see."""
    return without_secrets(urlunsplit(_bare(url)._replace(query="", fragment="")))


def _proxy(url: SplitResult, environ: Mapping[str, str]) -> str | None:
    def said(name: str) -> str:
        return environ.get(name) or environ.get(name.upper()) or ""

    proxy = said(f"{url.scheme}_proxy") or said("all_proxy")
    direct = {"no": said("no_proxy")}
    places = (url.hostname or "", _bare(url).netloc)  # an IPv6 address is listed without brackets
    if not proxy or any(proxy_bypass_environment(place, direct) for place in places):
        return None
    try:
        return urlunsplit(parsed(proxy if "://" in proxy else f"http://{proxy}"))
    except UsageError:
        raise UsageError(
            f"the proxy for {url.scheme}:// is not an HTTP proxy",
            hint="name an http:// proxy, or none",
        ) from None


def _credentials(
    url: SplitResult, hub: SplitResult, environ: Mapping[str, str]
) -> Mapping[tuple[str, str | None, int], str]:
    """The ``Authorization`` header of each origin that has one."""
    found = {}
    if token := environ.get("HF_TOKEN", "").strip():
        if not (token.isascii() and token.isprintable()):
            raise UsageError(
                "HF_TOKEN is not a token", hint="copy it again from the hub's settings"
            )
        found[_origin(hub)] = f"Bearer {token}"
    if url.username or url.password:
        pair = f"{unquote(url.username or '')}:{unquote(url.password or '')}"
        found[_origin(url)] = "Basic " + b64encode(pair.encode()).decode()
    return found


# --- this machine's own network -----------------------------------------------------------------


def _is_inside(host: str) -> bool:
    """Whether a name or an address belongs to this machine or to its local link.

    Cloud machines give their credentials to any program that asks at such an address.
    """
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    address = getattr(address, "ipv4_mapped", None) or address
    return address.is_loopback or address.is_link_local or address.is_unspecified


class _Outside(aiohttp.ThreadedResolver):
    """Resolves names, and refuses untrusted ones that lead to this machine's own network."""

    def __init__(self, trusts: Callable[[str], bool]) -> None:
        super().__init__()
        self._trusts = trusts

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await super().resolve(host, port, family)
        if not self._trusts(host) and any(_is_inside(entry["host"]) for entry in found):
            raise _InsideError(host)
        return found


class _InsideError(ValueError):
    """A name from a redirect leads to this machine's own network."""


# --- talking ------------------------------------------------------------------------------------


class Client:
    """Requests a model and its parts; counts and limits apply to all of them together."""

    def __init__(self, url: SplitResult, hub: SplitResult, environ: Mapping[str, str]) -> None:
        self.requests = 0
        self.bytes_read = 0
        self._hub, self._environ = hub, environ
        self._asked_inside = _is_inside(url.hostname or "")
        self._named = {url.hostname, hub.hostname}
        self._proxy_host: str | None = None
        self._credentials = _credentials(url, hub, environ)
        self._deadline = time.monotonic() + _ALL_SECONDS
        self._runner = asyncio.Runner()
        self._session: aiohttp.ClientSession | None = None

    @contextmanager
    def closed_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._session is not None:
            self._runner.run(self._session.close())
            self._session = None
        self._runner.close()

    def run(self, name: str, work: Coroutine[object, object, _T]) -> _T:
        """Do the work within the limits; report an error in one line about ``name``."""

        async def timed() -> _T:
            async with asyncio.timeout(min(_ANSWER_SECONDS, self._deadline - time.monotonic())):
                return await work

        try:
            return self._runner.run(timed())
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise _told(error, name) from None

    def json(self, url: SplitResult, name: str) -> object:
        """The JSON answer of an API.

        Raises:
            NotFoundError, ModelError: As :func:`~arriero.gguf.remote.open_model`.
        """

        async def body() -> bytes:
            response, _ = await self.get(url, name, {})
            async with response:
                if response.status != 200:
                    raise self.refusal(response.status, name, url)
                data = await self.take(response, _MAX_JSON, name)
                if not response.content.at_eof():
                    raise ModelError(f"{name}: the answer is larger than {human(_MAX_JSON)}")
                return data

        data = self.run(name, body())
        try:
            return json.loads(data)
        except (ValueError, RecursionError):
            raise ModelError(
                f"{name}: the answer of {url.hostname} is not JSON", hint="check HF_ENDPOINT"
            ) from None

    async def get(
        self, url: SplitResult, name: str, headers: Mapping[str, str]
    ) -> tuple[aiohttp.ClientResponse, SplitResult]:
        """The answer and the address it came from, after redirects."""
        if self._session is None:
            silent = aiohttp.ClientTimeout(
                total=None, connect=_CONNECT_SECONDS, sock_read=_SILENT_SECONDS
            )
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(resolver=_Outside(self._may_resolve)),
                timeout=silent,
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        for _ in range(_MAX_REDIRECTS + 1):
            self.requests += 1
            if self.requests > _MAX_REQUESTS:
                raise ModelError(f"{name}: the header needs more than {_MAX_REQUESTS} requests")
            own = {"Accept-Encoding": "identity", "User-Agent": "arriero", **headers}
            if authorization := self._credentials.get(_origin(url)):
                own["Authorization"] = authorization
            proxy = _proxy(url, self._environ)
            self._proxy_host = urlsplit(proxy).hostname if proxy else None
            response = await self._session.get(
                URL(urlunsplit(_bare(url)), encoded=True),
                headers=own,
                allow_redirects=False,
                proxy=proxy,
            )
            if response.status not in _REDIRECTS:
                return response, url
            response.close()
            url = self._redirected(url, response.headers.get("Location", ""), name)
        raise ModelError(
            f"{name}: more than {_MAX_REDIRECTS} redirects", hint="give the address of the file"
        )

    def _redirected(self, url: SplitResult, location: str, name: str) -> SplitResult:
        try:
            new = parsed(location and urljoin(urlunsplit(_bare(url)), location))
        except (UsageError, ValueError):
            raise ModelError(
                f"{name}: {url.hostname} redirects to an invalid address",
                hint="give the address of the file",
            ) from None
        if url.scheme == "https" and new.scheme == "http":
            raise ModelError(
                f"{name}: {url.hostname} redirects to {new.hostname} without encryption",
                hint="give that address yourself if you trust it",
            )
        if _is_inside(new.hostname or "") and not self._trusts(new.hostname or ""):
            raise ModelError(
                f"{name}: {url.hostname} redirects to this machine's own network ({new.hostname})",
                hint="give that address yourself if you trust it",
            )
        return new

    def _trusts(self, host: str) -> bool:
        """Whether the user named this host, or already uses this machine's own network."""
        return self._asked_inside or host in self._named

    def _may_resolve(self, host: str) -> bool:
        return host == self._proxy_host or self._trusts(host)

    async def take(self, response: aiohttp.ClientResponse, length: int, name: str) -> bytes:
        """Read so many bytes of the body, fewer at its end."""
        parts: list[bytes] = []
        left = length
        while left and (part := await response.content.read(left)):
            parts.append(part)
            left -= len(part)
            self.bytes_read += len(part)
            if self.bytes_read > _MAX_BYTES:
                raise ModelError(f"{name}: the header is larger than {human(_MAX_BYTES)}")
        return b"".join(parts)

    def refusal(self, status: int, name: str, url: SplitResult) -> ArrieroError:
        """The error for a status other than success."""
        at_hub = _origin(url) == _origin(self._hub)
        says = f"{name}: {url.hostname} answers {status}"
        match status:
            case 401 | 403 if at_hub:
                return ModelError(
                    f"{says}: the model is private or gated, or does not exist",
                    hint="set HF_TOKEN to a token that may read it, and accept its terms",
                )
            case 401 if _origin(url) in self._credentials:
                return ModelError(
                    f"{says}: it refuses the given user and password",
                    hint="check both; write @, : and / in them as %40, %3A and %2F",
                )
            case 407:
                return ModelError(
                    f"{name}: the proxy asks for user and password",
                    hint="put both before the host in the proxy's variable, as user:password@host",
                )
            case 401:
                return ModelError(
                    f"{says}: it asks for user and password",
                    # Written as a whole address, they would be taken out as somebody's.
                    hint="put both before the host in the address, as user:password@host",
                )
            case 403:
                return ModelError(
                    f"{says}: access is not allowed",
                    hint="get a new address: a signed one is valid for a while and for one file",
                )
            case 404 | 410:
                return NotFoundError(f"{says}: there is no such file", hint="check the address")
            case 416:
                return ModelError(f"{says}: the file is empty or has shrunk", hint="try again")
            case 429:
                return ModelError(f"{says}: too many requests", hint="wait, then try again")
            case _ if status >= 500:
                return ModelError(f"{says}: the server has a problem", hint="try again later")
            case _:
                return ModelError(says, hint="check the address")


def _told(error: Exception, name: str) -> ModelError:
    """The error of a connection, without its original text, which may contain private parts."""
    again = "check the connection, then try again"
    match error:
        case aiohttp.ClientConnectorCertificateError():
            reason = getattr(error.certificate_error, "verify_message", "") or "not valid"
            text, hint = (
                f"the certificate of {error.host} is refused: {reason}",
                ("check the clock; SSL_CERT_FILE names further authorities"),
            )
        case aiohttp.ClientSSLError():
            text, hint = f"cannot agree on TLS with {error.host}", "check whether it needs http://"
        case aiohttp.ClientConnectorDNSError():
            text, hint = f"cannot resolve the name {error.host}", "check the name of the host"
        case aiohttp.ClientConnectorError():
            reason = os.strerror(error.errno) if error.errno else "no connection"
            proxy = "the proxy " if isinstance(error, aiohttp.ClientProxyConnectionError) else ""
            text, hint = f"cannot reach {proxy}{error.host}: {reason}", again
        case aiohttp.ClientHttpProxyError():
            text, hint = f"the proxy answers {error.status}", "check the proxy's variables"
        case _InsideError():
            text = f"a redirect leads to this machine's own network ({error})"
            hint = "give that address yourself if you trust it"
        case TimeoutError():
            text, hint = "no answer in time", again
        case aiohttp.ClientPayloadError() | aiohttp.ServerDisconnectedError() | OSError():
            text, hint = "the connection broke", again
        case aiohttp.ClientResponseError():
            text, hint = "the answer is not HTTP", "check the address"
        case _:
            text, hint = "the address cannot be used", "check the address and the proxy's variables"
    return ModelError(f"{name}: {text}", hint=hint, id="model-remote")


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
