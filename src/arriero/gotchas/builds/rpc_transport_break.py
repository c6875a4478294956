"""Builds 8841 to 9002 lose workers right after the prompt; 8840 did not

Symptom
-------
The weights are sent and the prompt is read. Before the first token the server dies: `send failed
(bytes_sent=0`, then `Remote RPC server crashed or returned malformed response` at ggml-rpc.cpp:640.

Root cause
----------
Reporters blame the new RPC transport (ggml-org/llama.cpp#21998), which came with b8841. One report,
with small workers, was never resolved and may have been a lack of memory. Most reports are from
Windows, up to b9002.

Workaround
----------
Run build 8840 everywhere, or one much newer than 9002. Look into the worker's own log for what
killed it.

Better fix
----------
Say which message was refused, and why.
"""

from __future__ import annotations

from collections.abc import Iterator

from arriero.base.words import Kind
from arriero.gotchas.builds._range import told, within
from arriero.gotchas.facts import Facts
from arriero.gotchas.model import (
    Affects,
    Applies,
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
    signs=(Sign(kinds=(Kind.RPC,), text=r"send failed|ggml-rpc\.cpp:640", builds=(8841, 9002)),),
    reporters=2,
    provenance=Provenance(
        issues=("ggml-org/llama.cpp#22643", "ggml-org/llama.cpp#21998"),
        builds="b8840 good, b8841 to b9002 bad",
        hardware="SYCL, CUDA and CPU workers, Windows",
        command="--rpc A:50053,B:50053",
    ),
    related=("rpc-worker-lost",),
)


def detect(facts: Facts) -> Iterator[Found]:
    if endpoints(facts) and within(facts, 8841, 9002):
        yield Found(
            because=f"--rpc with {told(facts)}, one of those that lost workers after the prompt",
            applies=Applies.MAYBE,
            missing=("whether this build, or this system, has the defect",),
            flag="--rpc",
        )
