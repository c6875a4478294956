"""Builds 5451 to 5455 cannot allocate memory on AMD cards (HIP); builds 5450 and 5456 can

Symptom
-------
After an update from b5450 no memory is allocated on an AMD card, or the card is not found. The
model does not load, or it runs on the CPU.

Root cause
----------
A change of May 2025 to the way devices are asked for their memory did not work with HIP. The
reporter confirmed that b5456 finds the card again.

Workaround
----------
Use build 5456 or newer, or stay with 5450.

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
)

GOTCHA = Gotcha(
    updated="2026-12-01",
    kind=Class.BACKEND,
    severity=Severity.INFO,
    concepts=("ROCm", "devices"),
    affects=Affects(backends=("ROCm",)),
    reporters=1,
    provenance=Provenance(
        issues=("ggml-org/llama.cpp#13698",),
        builds="b5450 good, later bad, b5456 good",
        hardware="AMD, HIP",
        command="-m L3-8B",
    ),
)


def detect(facts: Facts) -> Iterator[Found]:
    cards = [pool.name for pool in facts.pools if pool.name.startswith(("ROCm", "HIP"))]
    if cards and within(facts, 5451, 5455):
        yield Found(because=f"{cards[0]} with {told(facts)}", flag="-ngl")
