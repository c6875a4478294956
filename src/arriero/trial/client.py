"""Requests to one llama-server."""

from __future__ import annotations

import ssl
from typing import Any

import aiohttp
import msgspec

from arriero.base import limits
from arriero.launch import Serving


class Client:
    """Requests to one llama-server, each with a limit on its time and on what is read."""

    def __init__(self, serving: Serving, timeout_s: float) -> None:
        self._serving = serving
        context: ssl.SSLContext | bool = True
        if serving.tls:
            # The certificate is the user's own; it cannot match the loopback address.
            context = ssl.create_default_context()
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=context, force_close=True),
            headers=serving.headers(),
            timeout=aiohttp.ClientTimeout(total=timeout_s),
        )

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._session.close()

    async def call(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Status and decoded JSON (or text) of one call; raises what aiohttp raises."""
        # a redirect would be measured and reported as this server
        async with self._session.request(
            method, self._serving.url(path), json=body, allow_redirects=False
        ) as response:
            raw = bytearray()
            async for piece in response.content.iter_chunked(1 << 16):
                raw += piece
                if len(raw) > limits.REPLY:
                    break
        try:
            return response.status, msgspec.json.decode(bytes(raw))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return response.status, raw.decode("utf-8", "replace")


def slots_in(props: Any) -> tuple[int, int]:
    """Slots, and context of each in tokens, as ``/props`` says them.

    Raises:
        ValueError: This is not what a llama-server answers there.
    """
    try:
        return int(props["total_slots"]), int(props["default_generation_settings"]["n_ctx"])
    except (KeyError, TypeError, OverflowError) as error:
        raise ValueError("not the /props of a llama-server") from error
