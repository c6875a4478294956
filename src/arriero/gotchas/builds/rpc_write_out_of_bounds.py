"""Build 2950 writes past the tensors of its workers and kills them

Symptom
-------
A worker dies with a failed `GGML_ASSERT` in `ggml-backend.c`, "tensor write out of bounds", as soon
as weights are sent. b2949 works.

Root cause
----------
b2950 (May 2024) changed how tensors are laid out, but not for workers.

Workaround
----------
Use another build than 2950, older or newer, on the server and on every worker.

Better fix
----------
Newer builds have the fix.
"""

from __future__ import annotations

from collections.abc import Iterator

from arriero.gotchas.builds._range import told, within
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
from arriero.gotchas.rpc._workers import endpoints

GOTCHA = Gotcha(
    updated="2026-12-01",
    kind=Class.BACKEND,
    severity=Severity.INFO,
    concepts=("RPC", "workers"),
    affects=Affects(backends=("RPC",), flags=("--rpc",)),
    signs=(Sign(text=r"tensor write out of bounds", builds=(2950, 2960)),),
    reporters=1,
    provenance=Provenance(
        issues=("ggml-org/llama.cpp#7427",), builds="b2949 good, b2950 bad", command="--rpc"
    ),
)


def detect(facts: Facts) -> Iterator[Found]:
    if endpoints(facts) and within(facts, 2950, 2950):
        yield Found(because=f"--rpc with {told(facts)}", flag="--rpc")
