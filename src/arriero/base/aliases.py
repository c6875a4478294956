"""Replace places in a text that others may read: paths by base names, machines by aliases.

Each name that is found on the way is remembered, so that it is replaced everywhere else too.
"""

from __future__ import annotations

import re
from typing import Final

from arriero.base.names import USER, Names
from arriero.base.places import (
    DATA_SUFFIX,
    FIELD_WORDS,
    MORE,
    PLACE,
    PUBLIC,
    ROUTES,
    STAMP,
    STAMPED,
    SUFFIX,
    VERSION,
    is_address,
    is_loopback,
    reduced,
)
from arriero.base.secret import SECRET

_LONGEST_PATH: Final = 4096
_LONGEST_SUFFIX: Final = 24


def without_places(names: Names, text: str) -> str:
    """Replace URLs, network paths and paths in one pass: none is read inside another."""
    parts: list[str] = []
    at = 0
    while found := PLACE.search(text, at):
        parts.append(text[at : found.start()])
        new, at = _place(names, text, found)
        parts.append(new)
    return "".join((*parts, text[at:]))


def _place(names: Names, text: str, found: re.Match[str]) -> tuple[str, int]:
    kind, body, end = found.lastgroup, found[0], found.end()
    if kind == "url":
        return _url(names, body), end
    if kind == "filepath":
        return found["file"] + reduced(found["filepath"]), end
    if kind == "remote":
        return _remote(names, body), end
    if kind == "unc":
        server = re.split(r"\\+", body.lstrip("\\"), maxsplit=1)[0]
        if server not in {"?", ".", "wsl$", "wsl.localhost"}:
            names.learn_host(server)
        return reduced(body), end
    if kind == "relative":
        keep = not DATA_SUFFIX.search(body) and not re.search("/(?:home|Users)/", body)
        return (body if keep else reduced(body)), end
    if kind in {"unix", "home"}:
        quoted = text[found.start() - 1 : found.start()] if found.start() else ""
        if quoted in {"'", '"'} and not body.startswith("%"):
            close = text.find(quoted, end, end + 300)
            line = text.find("\n", end, end + 300)
            if close > end and (line < 0 or close < line) and text[end] == " ":
                body, end = text[found.start() : close], close
        start = found.start()
        while (
            end - start < _LONGEST_PATH
            and not SUFFIX.search(text, max(start, end - _LONGEST_SUFFIX), end)
            and (more := MORE.match(text, end))
        ):
            body, end = body + more[0], more.end()
    return reduced(body), end


def _remote(names: Names, body: str) -> str:
    login, _, host = body[:-1].rpartition("@")
    if host.lower() in FIELD_WORDS | ROUTES or SUFFIX.search(host):
        return body
    names.learn_user(login)
    names.learn_host(host)
    return f"{USER}@{names.alias(host)}:" if login else f"{names.alias(host)}:"


def _url(names: Names, url: str) -> str:
    scheme, slashes, rest = re.split(r"(:(?:\\?/){2})", url, maxsplit=1)
    authority, path = re.match(r"([^/?#\\]*)(.*)", rest, re.DOTALL).groups()  # type: ignore[union-attr]  # it always matches
    login, at, place = authority.rpartition("@")
    bracketed = re.match(r"\[([^\]]*)\](.*)", place)
    host, port = bracketed.groups() if bracketed else re.match(r"([^:]*)(.*)", place).groups()  # type: ignore[union-attr]  # it always matches
    names.learn_user(login.partition(":")[0].strip("*"))
    if scheme.lower() == "hf" or PUBLIC.match(host):
        return url
    if not is_loopback(host):
        host = names.alias(host) if host else host
        names.learn_host(place.rpartition(":")[0] if port and not bracketed else place)
    elif bracketed:
        host = f"[{host}]"
    path = path.replace("\\/", "/").partition("?")[0].partition("#")[0]
    tail = re.search(r"[),.;:\]]*\Z", path)
    path, end = (path[: tail.start()], tail[0]) if tail else (path, "")
    if path.strip("/") and not set(path.strip("/").split("/")) <= ROUTES:
        path = "/" + reduced(path).lstrip("/")
    return f"{scheme}{slashes}{SECRET + at if login else ''}{host}{port}{path}{end}"


def login_alias(names: Names, found: re.Match[str]) -> str:
    user, host = found.groups()
    if re.fullmatch(r"sha256|[0-9a-f]{7,40}|v?[\d.]+", host):
        return found[0]
    if re.search(r"\.[A-Za-z]{2,}\Z", host):
        return "<email>"
    return f"{user if user in FIELD_WORDS else USER}@{names.alias(host)}"


def address_alias(names: Names, found: re.Match[str]) -> str:
    text = found[0]
    address = text.partition("%")[0]
    if STAMP.match(text) and STAMPED.match(found.string, found.end()):
        return text
    if not is_address(address) or is_loopback(address):
        return text
    if VERSION.search(found.string, max(0, found.start() - 16), found.start()):
        return text
    return names.alias(address)
