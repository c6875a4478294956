"""Who may ask for what: keys, and pages of other origins.

Keys go as llama-server takes them: ``Authorization: Bearer KEY`` or ``X-Api-Key: KEY``. Its public
paths need none, unless there is a prefix (seen on builds 10068 and 10434).

A page of another origin may not read an answer unless it is allowed. That is not only a matter of
CORS: a page whose name is made to point to this machine (DNS rebinding) has the same origin as the
server, as browsers see it. So what comes from a browser must name this server as it is known: by an
address, as localhost, or by a name that was allowed.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from arriero.base import limits
from arriero.base.errors import UsageError
from arriero.serve.control.endpoints import is_ours
from arriero.serve.http.interface import Headers
from arriero.serve.http.refused import RefusedError

_PUBLIC: Final = frozenset(
    {"/", "/index.html", "/health", "/v1/health", "/models", "/v1/models", "/favicon.ico"}
)
_BROWSER: Final = (b"origin", b"sec-fetch-site", b"sec-fetch-mode", b"accept-language", b"referer")
_NO_KEY: Final = "the key is missing or wrong: send it as Authorization: Bearer KEY"

ErrorBody = Callable[[str, int, str, str], tuple[Headers, bytes]]
"""Of the APIs: path, status, message and kind → headers and body."""


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys that let a request in, as digests: no key is kept. Empty lets everybody in."""

    digests: tuple[bytes, ...] = ()

    @classmethod
    def of(cls, keys: Iterable[str]) -> Keys:
        return cls(tuple(dict.fromkeys(map(_digest, keys))))

    def __bool__(self) -> bool:
        return bool(self.digests)

    def lets_in(self, key: str) -> bool:
        """Whether it is one of them, in a time that does not depend on which."""
        asked = _digest(key)
        found = False
        for digest in self.digests:
            found |= hmac.compare_digest(digest, asked)
        return found


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def keys_in(path: Path) -> tuple[str, ...]:
    """The keys in a file, one a line.

    Raises:
        UsageError: It cannot be read, or holds none.
    """
    try:
        with limits.open_regular(path) as file:
            lines = file.read(limits.KEY_FILE).decode("utf-8", "replace").splitlines()
    except OSError as error:
        raise UsageError(
            f"cannot read --api-key-file {path}: {error.strerror}",
            hint="name a file with one key a line",
        ) from None
    keys = tuple(line.strip() for line in lines if line.strip() and not line.startswith("#"))
    if not keys:
        raise UsageError(f"there is no key in {path}", hint="write one key a line into it")
    return keys


@dataclass(frozen=True, slots=True)
class Access:
    """Implements :class:`arriero.serve.http.front.Gatekeeper`.

    Attributes:
        hosts: Names by which browsers may know this server, in lower case, without port.
        origins: Origins whose pages may read answers; ``*`` is any.
        prefix: ``--api-prefix``.
    """

    keys: Keys
    hosts: frozenset[str]
    origins: frozenset[str]
    prefix: str
    error_body: ErrorBody

    def admit(self, method: str, path: str, headers: Headers) -> RefusedError | None:
        """See :class:`Gatekeeper`."""
        origin = _value(headers, b"origin").lower()
        allowed = bool(origin) and self._allows(origin)
        if any(name in _BROWSER for name, _ in headers) and not allowed:
            host = _value(headers, b"host")
            if not self._knows(host):
                return RefusedError(
                    403, "browsers do not know this server by that name: see --allow-host"
                )
            if origin and not _is_same(origin, host):
                return RefusedError(
                    403, "pages of this origin may not ask here: see --allow-origin"
                )
        if method == "OPTIONS":
            return _preflight(headers) if allowed else RefusedError(204, "", (), b"")
        if method in ("GET", "HEAD") and (
            is_ours(path, self.prefix) or (not self.prefix and path in _PUBLIC)
        ):
            return None  # what is under /arriero/ asks for the key itself
        return None if self.has_key(headers) else RefusedError(401, _NO_KEY)

    def has_key(self, headers: Headers) -> bool:
        """See :class:`Gatekeeper`."""
        return not self.keys or self.keys.lets_in(_key(headers))

    def client_of(self, headers: Headers, address: str) -> str:
        """See :class:`Gatekeeper`."""
        key = _key(headers)
        return _digest(key).hex()[:16] if key and self.keys else address

    def answer_headers(self, path: str, headers: Headers) -> Headers:
        """See :class:`Gatekeeper`."""
        if not self.origins:
            return ()
        origin = _value(headers, b"origin")
        if not origin or not self._allows(origin.lower()):
            return ((b"vary", b"origin"),)
        return (
            (b"access-control-allow-origin", origin.encode("latin-1")),
            (b"access-control-expose-headers", b"*"),
            (b"vary", b"origin"),
        )

    def error(self, path: str, status: int, message: str) -> tuple[Headers, bytes]:
        """See :class:`Gatekeeper`."""
        kinds = {401: "authentication_error", 403: "permission_error", 404: "not_found_error"}
        kind = kinds.get(status, "invalid_request_error" if status < 500 else "server_error")
        return self.error_body(path.removeprefix(self.prefix), status, message, kind)

    def _allows(self, origin: str) -> bool:
        return "*" in self.origins or origin in self.origins

    def _knows(self, host: str) -> bool:
        name = _name_of(host)
        own = socket.gethostname().lower()
        if name in self.hosts or name in {"localhost", own, f"{own}.local"}:
            return True
        if name.endswith(".localhost"):
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def _preflight(headers: Headers) -> RefusedError:
    asked = _value(headers, b"access-control-request-headers") or "*"
    return RefusedError(
        204,
        "",
        (
            (b"access-control-allow-methods", b"GET, POST, DELETE, OPTIONS"),
            (b"access-control-allow-headers", asked.encode("latin-1")),
            (b"access-control-max-age", b"600"),
        ),
        b"",
    )


def _is_same(origin: str, host: str) -> bool:
    return origin.partition("://")[2] == host.lower()


def _name_of(host: str) -> str:
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if host.count(":") == 1 else host


def _value(headers: Headers, name: bytes) -> str:
    return next((v for k, v in headers if k == name), b"").decode("latin-1")


def _key(headers: Headers) -> str:
    scheme, _, key = _value(headers, b"authorization").partition(" ")
    if scheme.lower() == "bearer" and key.strip():
        return key.strip().encode("latin-1").decode("utf-8", "surrogateescape")
    return _value(headers, b"x-api-key").encode("latin-1").decode("utf-8", "surrogateescape")
