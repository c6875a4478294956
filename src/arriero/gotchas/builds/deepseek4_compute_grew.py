"""Since b10568 the compute buffer of DeepSeek V4 on CUDA is some 200 MiB larger than before

Symptom
-------
A command for DeepSeek V4 that just fitted does not after an update: `failed to allocate compute
buffers` on CUDA. In the report the buffer of the first card went from 2366.28 MiB with b10567 to
2570.28 MiB with b10568, with the same command.

Root cause
----------
Something between these two builds made the graph larger; which change it was is not known. b10615
had it still.

Workaround
----------
Leave 256 MiB more free (`-fitt`), a smaller `-ub`, or stay with build 10567.

Better fix
----------
Find the change: `git bisect` between the two builds.
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
)

GOTCHA = Gotcha(
    updated="2026-12-01",
    kind=Class.FRAMEWORK,
    severity=Severity.INFO,
    concepts=("compute buffer", "CUDA"),
    affects=Affects(backends=("CUDA",), architectures=("deepseek4",), flags=("-fitt", "-ub")),
    reporters=1,
    provenance=Provenance(
        issues=("ggml-org/llama.cpp#27680",),
        builds="b10567 good, b10568 and b10615 bad",
        hardware="RTX 4090, Windows",
        command="-np 1 -c 64000 --cache-ram 0",
    ),
)


def detect(facts: Facts) -> Iterator[Found]:
    cards = [pool.name for pool in facts.pools if pool.name.startswith("CUDA")]
    if not cards or not within(facts, 10568, 10999):
        return
    if facts.header.metadata.get("general.architecture") == "deepseek4":
        yield Found(
            because=f"deepseek4 on {cards[0]} with {told(facts)}",
            applies=Applies.MAYBE,
            missing=("whether it is not mended in this build",),
            flag="-ub",
        )
