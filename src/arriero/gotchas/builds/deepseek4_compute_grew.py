"""Since b10568 the compute buffer of DeepSeek V4 on CUDA is about 200 MiB larger than before

Symptom
-------
A command for DeepSeek V4 that just fitted fails after an update with `failed to allocate compute
buffers` on CUDA. In the report, the same command needed a buffer of 2366.28 MiB on the first card
with b10567 and of 2570.28 MiB with b10568.

Root cause
----------
A change between these two builds made the compute graph larger. Which change is not known. b10615
still had it.

Workaround
----------
Keep 256 MiB more free (`-fitt`), set a smaller `-ub`, or stay with build 10567.

Better fix
----------
Find the change with `git bisect` between the two builds.
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
            missing=("whether this build has a fix",),
            flag="-ub",
        )
