"""Vulkan builds up to April 2026 may report the smallest heap of a card as its free memory

Symptom
-------
`--list-devices` shows far less free memory than the card has, and `--fit` leaves most layers on the
host.

Root cause
----------
A Vulkan device has several heaps. On cards with more than one device-local heap, these builds
reported the smallest (ggml-org/llama.cpp#22368, closed).

Workaround
----------
Use a newer build. Or set `-ngl` to the number of layers that the card really holds: `--fit` does
not change a number that is set.

Better fix
----------
Report the largest heap.
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
    kind=Class.BACKEND,
    severity=Severity.INFO,
    concepts=("Vulkan", "fit", "devices"),
    affects=Affects(backends=("Vulkan",), flags=("--fit", "-ngl")),
    reporters=1,
    provenance=Provenance(
        issues=("ggml-org/llama.cpp#22368",),
        builds="April 2026, about b8700 to b8950",
        hardware="Vulkan",
    ),
)


def detect(facts: Facts) -> Iterator[Found]:
    cards = [pool.name for pool in facts.pools if pool.name.startswith("Vulkan")]
    open_ = facts.launch.fit and facts.launch.layers_open
    if cards and open_ and within(facts, 8700, 8950):
        yield Found(
            because=f"--fit relies on the free memory that {told(facts)} reports for {cards[0]}",
            applies=Applies.MAYBE,
            missing=("the heaps of the card (vulkaninfo shows them)",),
            flag="-fit",
        )
