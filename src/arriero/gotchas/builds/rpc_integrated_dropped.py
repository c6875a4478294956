"""Builds of May 2026 ignore an integrated GPU beside a worker, and give the worker everything

Symptom
-------
With `--rpc` the local GPU is not used at all, and the load ends with `failed to allocate RPC0[...]
buffer of size ...` for the whole model. Without `--rpc` the GPU is used.

Root cause
----------
The engine uses an integrated GPU only when there is no other device, and in these builds a worker
counted as another device. This began with ggml-org/llama.cpp#23007 (about b9200) and ended with
#23868 (about b9420).

Workaround
----------
Name the devices: `-dev ROCm0,RPC0`, with the names that `--list-devices` shows. Or use a newer
build.

Better fix
----------
Newer builds have the fix.
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
    kind=Class.FRAMEWORK,
    severity=Severity.INFO,
    concepts=("RPC", "workers", "integrated GPU"),
    affects=Affects(backends=("RPC",), flags=("--rpc", "-dev")),
    signs=(Sign(kinds=(Kind.ALLOCATION,), device="RPC", builds=(9200, 9419)),),
    reporters=1,
    provenance=Provenance(
        issues=("ggml-org/llama.cpp#23858", "ggml-org/llama.cpp#23868"),
        builds="about b9200 to b9420",
        hardware="Strix Halo (ROCm) with a worker",
        command="--rpc peer:50052",
    ),
    related=("rpc-worker-memory",),
)


def detect(facts: Facts) -> Iterator[Found]:
    if endpoints(facts) and facts.launch.params.devices is None and within(facts, 9200, 9419):
        yield Found(
            because=f"--rpc without -dev: {told(facts)} ignores an integrated GPU",
            applies=Applies.MAYBE,
            missing=("whether this machine's GPU is an integrated one",),
            flag="--rpc",
        )
