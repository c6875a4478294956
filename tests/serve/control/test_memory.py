"""Pools of memory: planned beside taken, whatever the driver calls its cards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from arriero.record import MemoryUse, PlanPool
from arriero.serve.control.memory import memory_uses

GIB = 1 << 30


@dataclass(frozen=True)
class Read:
    free: int
    engine: int | None
    total: int | None = None


def pool(name: str, planned: int, **more: Any) -> PlanPool:
    given: dict[str, Any] = {
        "devices": (name,), "total": 16 * GIB, "free": 12 * GIB, "limited_by": "its size",
        "at_start": planned // 2, "margin": 0, "headroom": None, "fits": True,
    }  # fmt: skip
    return PlanPool(name=name, planned=planned, **(given | more))


def used(name: str, most: int, **more: int) -> MemoryUse:
    return MemoryUse(pool=name, planned=most // 2, most=most, **more)


def test_a_card_is_taken_for_the_one_device_that_is_planned() -> None:
    uses = memory_uses(
        [pool("CUDA0", 3 * GIB), pool("host", GIB)],
        {"host": Read(20 * GIB, 5, 32 * GIB), "nvml0": Read(4 * GIB, 2 * GIB, 8 * GIB)},
        2 * GIB,
    )
    assert uses == (
        used("CUDA0", 3 * GIB, actual=2 * GIB, total=8 * GIB, free=4 * GIB),
        used("host", GIB, actual=2 * GIB, total=32 * GIB, free=20 * GIB),
    )


def test_cards_that_cannot_be_told_apart_stand_for_themselves() -> None:
    uses = memory_uses([pool("CUDA0", GIB)], {"nvml0": Read(1, 2), "nvml1": Read(3, None)}, None)
    assert [(one.pool, one.most, one.actual) for one in uses] == [
        ("CUDA0", GIB, None),
        ("nvml0", None, 2),
        ("nvml1", None, None),
    ]


def test_an_unusable_pool_has_no_card() -> None:
    planned = [pool("CUDA0", GIB), pool("Vulkan0", 0, usable=False)]
    uses = memory_uses(planned, {"nvml0": Read(1, 2)}, None)
    assert [(one.pool, one.actual) for one in uses] == [("CUDA0", 2), ("Vulkan0", None)]


def test_without_a_plan_and_without_an_engine() -> None:
    assert memory_uses([], {"host": Read(1, 2, 3)}, None) == (
        MemoryUse(pool="host", actual=2, total=3, free=1),
    )
    assert memory_uses([pool("host", GIB)], {}, None) == (
        used("host", GIB, total=16 * GIB, free=12 * GIB),
    )
