"""A worker obeys whoever reaches its port: it has no key and checks little of what it receives

Symptom
-------
None, until another program talks to the worker. One malformed message is enough to end it
(`ggml_abort`), and ggml's own documentation calls workers insecure.

Root cause
----------
The protocol of workers has no key and no encryption. Whatever arrives is used as tensors and
graphs. Several ways to crash a worker with a message were reported and fixed one by one (for
example ggml-org/llama.cpp#13067), and there may be more.

Workaround
----------
Bind workers to the loopback and reach them through an SSH tunnel, or bind them to an address in a
network that nobody else uses (VPN, direct cable): `ggml-rpc-server -H 127.0.0.1`. Never open the
port to the internet.

Better fix
----------
A key for workers.
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
from arriero.gotchas.rpc._workers import endpoints

GOTCHA = Gotcha(
    updated="2026-12-01",
    kind=Class.FRAMEWORK,
    severity=Severity.INFO,
    concepts=("RPC", "workers", "security"),
    affects=Affects(backends=("RPC",), flags=("--rpc",)),
    reporters=1,
    provenance=Provenance(
        issues=("ggml-org/llama.cpp#13067",),
        builds="b5169 and others",
        command="rpc-server -H 0.0.0.0",
    ),
    related=("open-without-key",),
)


def detect(facts: Facts) -> Iterator[Found]:
    away = [name for name in endpoints(facts) if not _is_local(name)]
    if away:
        yield Found(
            because=f"{away[0]} is reached over a network and does not ask for a key", flag="--rpc"
        )


def _is_local(endpoint: str) -> bool:
    """Whether a worker is on this machine, or its address is a placeholder."""
    host = endpoint.rpartition(":")[0].strip("[]") or endpoint
    if host == "localhost" or "$" in host:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
