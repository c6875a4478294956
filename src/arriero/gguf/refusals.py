"""What a server or a connection refused, and what to do about it."""

from __future__ import annotations

import os

import aiohttp

from arriero.base.errors import ArrieroError, ModelError, NotFoundError


class InsideError(ValueError):
    """A name from a redirect leads to this machine's own network."""


def refused(says: str, name: str, status: int, at_hub: bool, has_credentials: bool) -> ArrieroError:
    """The error for a status other than success; ``says`` tells who answers and what."""
    match status:
        case 401 | 403 if at_hub:
            return ModelError(
                f"{says}: the model is private or gated, or does not exist",
                hint="set HF_TOKEN to a token that may read it, and accept its terms",
            )
        case 401 if has_credentials:
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


def broken(error: Exception, name: str) -> ModelError:
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
        case InsideError():
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
