"""Recorded CUDA graphs pile up when each pass looks new: on workers and with `-sm graph`

Symptom
-------
Device memory grows with every token or every request, in steps of about 90 MB, until an allocation
fails. `~ggml_backend_cuda_context: have 742 graphs` appears at the end. If it happens on a worker,
the server says `Remote RPC server crashed`.

Root cause
----------
CUDA graphs are kept to be run again, and are found by the tensors that they work on. Over RPC the
tensors are new in each pass, so a worker records a new graph each time and never uses it again. The
fork ik_llama.cpp does the same with `-sm graph`.

Workaround
----------
Set `GGML_CUDA_DISABLE_GRAPHS=1` in the environment of the worker or server. In ik_llama.cpp use
`-cuda graphs=0`.

Better fix
----------
Limit how many graphs are kept.
"""

from __future__ import annotations

from collections.abc import Iterator

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
    concepts=("CUDA", "RPC", "graphs"),
    affects=Affects(backends=("CUDA", "RPC"), flags=("--rpc",)),
    signs=(Sign(notice="cuda_graphs"),),
    reporters=2,
    provenance=Provenance(
        issues=("ggml-org/llama.cpp#20315", "ikawrakow/ik_llama.cpp#1232"),
        builds="about b8250; the fork in April 2026",
        hardware="CUDA workers; two RTX 3090",
        command="--rpc; -sm graph",
    ),
    related=("device-pool-grows", "rpc-worker-lost"),
)


def detect(facts: Facts) -> Iterator[Found]:
    if endpoints(facts) and within(facts, 8200, 8999):
        yield Found(
            because=f"--rpc with {told(facts)}: a CUDA worker records a graph in each pass",
            applies=Applies.MAYBE,
            missing=("whether the workers use CUDA, and whether their build has a fix",),
            flag="--rpc",
        )
