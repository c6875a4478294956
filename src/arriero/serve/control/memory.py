"""Pools of memory as the page shows them: what was planned beside what is taken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import msgspec

from arriero.record import MemoryUse, PlanPool

_HOST: Final = frozenset({"host", "shared"})


class Reading(Protocol):
    """One pool at one time, in bytes; ``engine`` is None where nobody says what it has of it."""

    @property
    def free(self) -> int: ...

    @property
    def engine(self) -> int | None: ...

    @property
    def total(self) -> int | None: ...


def memory_uses(
    planned: Sequence[PlanPool], readings: Mapping[str, Reading], resident: int | None
) -> tuple[MemoryUse, ...]:
    """Planned pools with what is read of them, and pools that only a reading knows.

    A driver names cards in its own way (``nvml0``). They are taken for the planned devices where
    there are as many of one as of the other.

    Args:
        resident: Host memory of the engine with the pages of its model, which a plan counts too.
    """
    devices = [pool.name for pool in planned if pool.name not in _HOST and pool.usable]
    cards = sorted(name for name in readings if name not in _HOST)
    same = dict(zip(devices, cards, strict=True)) if len(devices) == len(cards) else {}
    uses = [_use(pool, readings.get(same.get(pool.name, pool.name))) for pool in planned]
    told = {*same.values(), *(pool.name for pool in planned)}
    uses += [
        MemoryUse(pool=name, actual=one.engine, total=one.total, free=one.free)
        for name, one in readings.items()
        if name not in told
    ]
    return tuple(_with_pages(use, resident) for use in uses)


def _use(pool: PlanPool, reading: Reading | None) -> MemoryUse:
    return MemoryUse(
        pool=pool.name,
        planned=pool.at_start,
        most=pool.planned,
        actual=None if reading is None else reading.engine,
        total=pool.total if reading is None or reading.total is None else reading.total,
        free=pool.free if reading is None else reading.free,
    )


def _with_pages(use: MemoryUse, resident: int | None) -> MemoryUse:
    if use.pool not in _HOST or resident is None:
        return use
    return msgspec.structs.replace(use, actual=resident)
