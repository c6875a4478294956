"""Addresses of files on servers: how they are shown, and what a request to one may carry."""

from __future__ import annotations

import ipaddress
from base64 import b64encode
from collections.abc import Mapping
from urllib.parse import SplitResult, quote, unquote, urlsplit, urlunsplit
from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]

from arriero.base.errors import UsageError
from arriero.base.secret import without_secrets


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


def origin(url: SplitResult) -> tuple[str, str | None, int]:
    return url.scheme, url.hostname, url.port or (443 if url.scheme == "https" else 80)


def bare(url: SplitResult) -> SplitResult:
    """The address without user and password."""
    return url._replace(netloc=url.netloc.rpartition("@")[2])


def shown(url: SplitResult) -> str:
    """The address in a form that anybody may see."""
    return without_secrets(urlunsplit(bare(url)._replace(query="", fragment="")))


def proxy_for(url: SplitResult, environ: Mapping[str, str]) -> str | None:
    def said(name: str) -> str:
        return environ.get(name) or environ.get(name.upper()) or ""

    proxy = said(f"{url.scheme}_proxy") or said("all_proxy")
    direct = {"no": said("no_proxy")}
    places = (url.hostname or "", bare(url).netloc)  # an IPv6 address is listed without brackets
    if not proxy or any(proxy_bypass_environment(place, direct) for place in places):
        return None
    try:
        return urlunsplit(parsed(proxy if "://" in proxy else f"http://{proxy}"))
    except UsageError:
        raise UsageError(
            f"the proxy for {url.scheme}:// is not an HTTP proxy",
            hint="name an http:// proxy, or none",
        ) from None


def credentials(
    url: SplitResult, hub: SplitResult, environ: Mapping[str, str]
) -> Mapping[tuple[str, str | None, int], str]:
    """The ``Authorization`` header of each origin that has one."""
    found = {}
    if token := environ.get("HF_TOKEN", "").strip():
        if not (token.isascii() and token.isprintable()):
            raise UsageError(
                "HF_TOKEN is not a token", hint="copy it again from the hub's settings"
            )
        found[origin(hub)] = f"Bearer {token}"
    if url.username or url.password:
        pair = f"{unquote(url.username or '')}:{unquote(url.password or '')}"
        found[origin(url)] = "Basic " + b64encode(pair.encode()).decode()
    return found


def is_inside(host: str) -> bool:
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
