"""Talk to servers that have models: redirects, credentials, proxies and limits.

This module, not the HTTP library, handles redirects and credentials: a token, a password or a
signed query is sent only to the origin for which it was given, and appears in no message.
"""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, TypeVar
from urllib.parse import SplitResult, urljoin, urlsplit, urlunsplit

import aiohttp
from aiohttp.abc import ResolveResult
from yarl import URL

from arriero.base.errors import ArrieroError, ModelError, UsageError
from arriero.base.sizes import MIB, human
from arriero.gguf.addresses import bare, credentials, is_inside, origin, parsed, proxy_for
from arriero.gguf.refusals import InsideError, broken, refused

_T = TypeVar("_T")

_MAX_BYTES: Final = 256 * MIB
_MAX_REQUESTS: Final = 2048
_MAX_JSON: Final = 4 * MIB
_MAX_REDIRECTS: Final = 5
_CONNECT_SECONDS: Final = 15.0
_SILENT_SECONDS: Final = 30.0
_ANSWER_SECONDS: Final = 120.0
_ALL_SECONDS: Final = 600.0
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})


class _Outside(aiohttp.ThreadedResolver):
    """Resolves names, and refuses untrusted ones that lead to this machine's own network."""

    def __init__(self, trusts: Callable[[str], bool]) -> None:
        super().__init__()
        self._trusts = trusts

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await super().resolve(host, port, family)
        if not self._trusts(host) and any(is_inside(entry["host"]) for entry in found):
            raise InsideError(host)
        return found


class Client:
    """Requests a model and its parts; counts and limits apply to all of them together."""

    def __init__(self, url: SplitResult, hub: SplitResult, environ: Mapping[str, str]) -> None:
        self.requests = 0
        self.bytes_read = 0
        self._hub, self._environ = hub, environ
        self._asked_inside = is_inside(url.hostname or "")
        self._named = {url.hostname, hub.hostname}
        self._proxy_host: str | None = None
        self._credentials = credentials(url, hub, environ)
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
            raise broken(error, name) from None

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
            if authorization := self._credentials.get(origin(url)):
                own["Authorization"] = authorization
            proxy = proxy_for(url, self._environ)
            self._proxy_host = urlsplit(proxy).hostname if proxy else None
            response = await self._session.get(
                URL(urlunsplit(bare(url)), encoded=True),
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
            new = parsed(location and urljoin(urlunsplit(bare(url)), location))
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
        if is_inside(new.hostname or "") and not self._trusts(new.hostname or ""):
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
        at_hub = origin(url) == origin(self._hub)
        known = origin(url) in self._credentials
        return refused(f"{name}: {url.hostname} answers {status}", name, status, at_hub, known)
