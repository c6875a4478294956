"""A running server, given by its address."""

from __future__ import annotations

import os
import re
from urllib.parse import urlsplit

from arriero.base.errors import UsageError
from arriero.launch import Mode, Serving


def server_at(url: str, api_key: str | None) -> Serving:
    """How the server at an address is reached; clients of OpenAI's API give it with ``/v1``.

    Raises:
        UsageError: It is no address.
    """
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port
    except ValueError:  # a port that is none, a bracket that is not closed
        parts, port = urlsplit(""), -1
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == -1:
        told = without_login(url)
        raise UsageError(f"not an address: {told}", hint="write it like http://127.0.0.1:8080")
    return Serving(
        host=parts.hostname,
        port=port or (443 if parts.scheme == "https" else 80),
        socket=None,
        tls=parts.scheme == "https",
        prefix=parts.path.rstrip("/").removesuffix("/v1"),  # what clients of OpenAI's API are given
        api_keys=(api_key,) if api_key else (),
        mode=Mode.TEXT,
        router=False,
        metrics=False,
        slots=True,
    )


def without_login(url: str) -> str:
    """An address without user, password, query and fragment, however broken it is."""
    scheme, slashes, rest = url.partition("://") if "://" in url else ("", "", url)
    if "@" in rest:
        rest = f"***@{rest.rpartition('@')[2]}"
    return scheme + slashes + re.split(r"[?#]", rest, maxsplit=1)[0]


def reason_of(error: Exception, allowed: float) -> str:
    """Why a request failed, in a few words; ``allowed`` is how many seconds it had."""
    import aiohttp

    if isinstance(error, TimeoutError):
        return f"no answer within {allowed:.0f} s"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "no address is known for this name"
    number = getattr(error, "errno", None)
    return os.strerror(number) if number and number > 0 else str(error) or type(error).__name__
