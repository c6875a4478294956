"""An engine that was built without RPC does not know `--rpc` and has no worker program

Symptom
-------
`error: invalid argument: --rpc`, or a script that does not find `rpc-server`.

Root cause
----------
RPC is an option of the build (`-DGGML_RPC=ON`), and packages of distributions and of Homebrew often
leave it out. The worker program was called `rpc-server`; in builds of 2026 it is `ggml-rpc-server`.
The flag has two dashes: `-rpc` does not exist.

Workaround
----------
Use builds with `-DGGML_RPC=ON` for the server and the workers, and look for both names of the
worker program. Write `--rpc`.

Better fix
----------
Say in the error that this build has no RPC.
"""

from __future__ import annotations

from collections.abc import Iterator

from arriero.gotchas.facts import Facts
from arriero.gotchas.model import (
    Affects,
    Class,
    Found,
    Gotcha,
    Provenance,
    Severity,
    Sign,
)

GOTCHA = Gotcha(
    updated="2026-12-01",
    kind=Class.CONFIGURATION,
    severity=Severity.INFO,
    concepts=("RPC", "flags"),
    affects=Affects(backends=("RPC",), flags=("--rpc",)),
    signs=(Sign(text=r"invalid argument: -{1,2}rpc\b|failed to find RPC backend", sure=True),),
    reporters=1,
    provenance=Provenance(
        issues=("ggml-org/llama.cpp#26529",), builds="2026", command="-rpc, --rpc, rpc-server"
    ),
    related=("flag-unknown", "rpc-worker-unused"),
)


def detect(facts: Facts) -> Iterator[Found]:
    names = {item.name for item in facts.command.items}
    if "-rpc" in names:
        yield Found(because="-rpc does not exist: --rpc has two dashes", flag="-rpc")
    elif "--rpc" in names and facts.own and facts.command.flags.get("--rpc") is None:
        yield Found(because="this engine was built without --rpc", flag="--rpc")
