"""The server listens beyond this machine and does not ask for a key

Symptom
-------
None. Whoever can reach the address can use the model, read what is in other clients' slots and,
with some flags, run tools. Newer builds warn once at the start (`CORS is set to allow all
origins`).

Root cause
----------
A `--host` other than the loopback opens the port to the network, and without `--api-key` or
`--api-key-file` the server answers every request.

Workaround
----------
Use `--host 127.0.0.1` behind a proxy, or `--api-key-file` with a key. In a container the address
must be open inside; publish the port on the loopback instead (`-p 127.0.0.1:8080:8080`).

Better fix
----------
Refuse an open address without a key unless a flag says that it is intended.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from arriero.gotchas.facts import Facts
from arriero.gotchas.model import (
    Affects,
    Class,
    Found,
    Gotcha,
    Provenance,
    Severity,
)
from arriero.record import Edit

GOTCHA = Gotcha(
    kind=Class.CONFIGURATION,
    severity=Severity.INFO,
    updated="2026-11-30",
    concepts=("address", "API key", "security"),
    affects=Affects(flags=("--host", "--api-key", "--api-key-file")),
    log=("CORS is set to allow all origins",),
    provenance=Provenance(
        issues=("ggml-org/llama.cpp#25655",), builds="any", command="--host 0.0.0.0"
    ),
)
_POWERFUL = ("--tools", "--mcp-servers-config", "--mcp-servers-json", "--slot-save-path")
"""With these a stranger can do more than ask: run tools, write files."""


def detect(facts: Facts) -> Iterator[Found]:
    command, published = facts.command, facts.around.published
    host = command.value("--host") or ""
    if command.has("--api-key") or command.has("--api-key-file") or (host and _is_local(host)):
        return
    told = f"--host {host}" if host else ""
    if published is not None and "host" not in published:
        ports = [port for port in published if not _on_loopback(port)]
        if published and not ports:
            return
        # An image of llama.cpp listens on every address by default.
        told = f"port {ports[0]} is published" if ports else told
    elif published is not None and not host:
        told = "the network of the host"
    if not told:
        return
    powerful = next((name for name in _POWERFUL if command.has(name)), None)
    yield Found(
        because=f"{told} without an API key" + (f", and {powerful}" if powerful else ""),
        severity=Severity.WARNING if powerful else None,
        edit=(Edit(flag="--host", value="127.0.0.1"),) if powerful and published is None else (),
        flag="--host",
    )


def _on_loopback(port: str) -> bool:
    """Whether a published port is open only to this machine: ``127.0.0.1:8080:8080``."""
    address = port.rpartition(":")[0].rpartition(":")[0].strip("[]")
    if "$" in address:
        return True  # a placeholder
    return address == "localhost" or address.startswith(("127.", "::1"))


def _is_local(host: str) -> bool:
    if host in ("", "localhost") or host.endswith(".sock"):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return "$" in host  # a placeholder
