"""``arriero status``: how a server that Arriero keeps up is doing."""

from __future__ import annotations

import asyncio
from typing import Any, Final, TypeVar

import msgspec

from arriero.base.errors import ArrieroError, NotFoundError, UsageError
from arriero.jobs._server import reason_of, server_at
from arriero.launch import Serving
from arriero.record import Status, decode
from arriero.trial.client import Client

DEFAULT: Final = "http://127.0.0.1:8080"
_SECONDS: Final = 10.0
_T = TypeVar("_T", bound=msgspec.Struct)


def status(url: str = DEFAULT, *, api_key: str | None = None) -> Status:
    """Ask a server how it is doing.

    Args:
        url: Its address, as its clients have it.
        api_key: Its key, where it has one.

    Raises:
        NotFoundError: Nothing answers there, or no server of Arriero's.
        UsageError: It asks for a key.
    """
    return asked(url, "/arriero/status", Status, api_key)


def asked(url: str, path: str, kind: type[_T], api_key: str | None) -> _T:
    """One document of a server.

    Raises:
        NotFoundError: Nothing answers there, or there is no such document.
        UsageError: It asks for a key.
    """
    server = server_at(url, api_key)
    code, body = asyncio.run(_get(server, path))
    if code in (401, 403):
        asks = "refuses this API key" if server.api_keys else "asks for an API key"
        raise UsageError(f"the server {asks}", hint="give it with --api-key")
    said = body.get("schema") if isinstance(body, dict) else None
    if said == "arriero.error/1":
        error = body.get("error") or {}
        raise NotFoundError(
            f"the server at {server.url('')} says: {error.get('message')}",
            hint="run arriero incidents --url to see what it has",
            id=str(error.get("id") or "not-found"),
        )
    try:
        found = decode(msgspec.json.encode(body), f"the answer of {server.url(path)}")
    except ArrieroError:
        found = None
    if code != 200 or not isinstance(found, kind):
        raise NotFoundError(
            f"what answers at {server.url('')} is no server of Arriero's",
            hint="start one with arriero serve -- llama-server …",
            id="not-served",
        )
    return found


async def _get(server: Serving, path: str) -> tuple[int, Any]:
    import aiohttp  # late: it takes longer to load than most commands

    try:
        async with Client(server, _SECONDS) as client:
            return await client.call("GET", path)
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        raise NotFoundError(
            f"nothing answers at {server.url('')}: {reason_of(error, _SECONDS)}",
            hint="check that the server is running and that the address is right",
            id="no-server",
        ) from None
