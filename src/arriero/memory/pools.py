"""Whether the pools of a machine hold what is planned, with a margin."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from arriero.base.buffers import HOST, pool_of
from arriero.base.errors import UsageError
from arriero.base.sizes import MIB, parse_size
from arriero.base.words import Method
from arriero.machine import Pool
from arriero.machine.host import ULIMIT
from arriero.machine.pools import SOFTWARE
from arriero.record import PlanBuffer, PlanGrowth, PlanPool

_ON_WORKER: Final = re.compile(r"RPC(\d{1,3})\[(.+)\]")
_SURE: Final = frozenset({Method.EXACT, Method.MEASURED, Method.CALIBRATED})
_HOST_MARGIN: Final = 256 * MIB
_UNCOUNTED: Final = (
    "address space, not RAM: the margin covers libraries and the stacks and arenas of threads, but "
    "not what device drivers reserve"
)
_HOST_SHARE: Final = 0.03
"""Kept on the host for libraries, heap, threads, work buffers and the system itself."""


def parse_pools(text: str) -> tuple[Pool, ...]:
    """Pools of hardware one does not have: ``CUDA0=24GiB,CUDA1=16GiB,host=64GiB``.

    All of a pool counts as free. Without ``host`` nothing is known about the host.

    Raises:
        UsageError: A part is not ``NAME=SIZE``, or a name comes twice.
    """
    sizes: dict[str, int] = {}
    for part in text.split(","):
        name, equals, size = (word.strip() for word in part.partition("="))
        if not equals or not re.fullmatch(r"[A-Za-z_]+\d*", name):
            raise UsageError(
                f"not a budget: {part.strip()!r}", hint="write it like CUDA0=24GiB,host=64GiB"
            )
        name = HOST if name.lower() in (HOST, "cpu") else name
        if name in sizes:
            raise UsageError(f"{name} comes twice in the budget")
        sizes[name] = parse_size(size)
    named = [Pool(name, (name,), size, size, "--budget") for name, size in sizes.items()]
    host = [pool for pool in named if pool.name == HOST]
    unknown = Pool(HOST, (HOST,), None, None, "not in --budget")
    return (*(host or [unknown]), *(pool for pool in named if pool.name != HOST))


def integrated(pools: Sequence[Pool]) -> frozenset[str]:
    """Devices that are part of the processor and use the host's memory."""
    return frozenset(
        device.name
        for pool in pools
        if HOST in pool.devices
        for device in pool.listed
        if not device.name.startswith("RPC") and not SOFTWARE.search(device.description)
    )


def device_of(buffer: str, pools: Sequence[Pool]) -> str:
    """The device of a buffer type: a worker's has the worker's own number and its endpoint."""
    match = _ON_WORKER.fullmatch(buffer)
    if match is None:
        return buffer
    listed = [one for pool in pools for one in pool.listed if one.description == match[2]]
    named = [one.name for one in listed if one.name.startswith("RPC")]
    return named[int(match[1])] if int(match[1]) < len(named) else buffer


def planned_pools(
    pools: Sequence[Pool],
    buffers: Sequence[PlanBuffer],
    margins: Mapping[str, int],
    reserved: int = 0,
    growth: Sequence[PlanGrowth] = (),
) -> tuple[PlanPool, ...]:
    """Every pool with what is planned in it.

    A pool does not start what takes more than it has in any case; what a bound alone says is too
    much may start. It fits when it starts, does not outgrow the pool and leaves the margin, and
    nothing in it is unknown.

    Args:
        margins: Of devices that the model is spread over, as the engine's own fit would keep them.
        reserved: Address space that threads and libraries take: margin where that is the limit.
        growth: What adds to the lines that grow.
    """
    return tuple(_planned(pool, pools, buffers, margins, reserved, growth) for pool in pools)


def _planned(
    pool: Pool,
    pools: Sequence[Pool],
    buffers: Sequence[PlanBuffer],
    margins: Mapping[str, int],
    reserved: int,
    growth: Sequence[PlanGrowth],
) -> PlanPool:
    inside = [b for b in buffers if pool_of(b.device, pools) is pool]
    held = _Held(inside)
    margin = max(margins.get(device, 0) for device in pool.devices)
    address_space = pool.limited_by == ULIMIT
    if HOST in pool.devices:
        margin = max(margin, _HOST_MARGIN, int(_HOST_SHARE * (pool.free or 0)))
        margin += reserved * address_space
    starts = outgrows = fits = headroom = None
    if pool.free is not None:
        headroom = pool.free - held.most
        if pool.usable:
            starts, outgrows = held.starts(pool.free), held.outgrows(pool.free)
            fits = _fits(starts, outgrows, headroom >= margin)
    return PlanPool(
        name=pool.name,
        devices=pool.devices,
        total=pool.total,
        free=pool.free,
        limited_by=pool.limited_by,
        planned=held.most,
        at_start=held.at_start,
        margin=margin,
        headroom=headroom,
        fits=fits,
        starts=starts,
        outgrows=outgrows,
        surely=held.surely,
        growth=tuple(
            _counted(one, pool.free - held.at_start if pool.free is not None else None)
            for one in growth
            if pool_of(one.device, pools) is pool
        ),
        usable=pool.usable,
        note="; ".join(filter(None, (pool.note, _UNCOUNTED if address_space else ""))),
        knob=pool.knob,
        move_with=pool.move_with,
    )


class _Held:
    """What is planned in one pool, from below and from above."""

    def __init__(self, inside: Sequence[PlanBuffer]) -> None:
        start = [b for b in inside if not b.grows]
        growing = [b for b in inside if b.grows]
        self.at_start = sum(b.bytes or 0 for b in start)
        self.most = self.at_start + sum(b.bytes or 0 for b in growing)
        self.surely = sum(map(surely, start))
        self._reached = sum(b.bytes or 0 for b in growing if b.method is Method.EXACT)
        """What serving fills in the end, whatever a backend's own pools come to."""
        self._grows = bool(growing)
        self._open_start = any(b.bytes is None for b in start)
        self._open_growth = any(b.bytes is None for b in growing)

    def starts(self, free: int) -> bool | None:
        if self.surely > free:
            return False
        return True if self.at_start <= free and not self._open_start else None

    def outgrows(self, free: int) -> bool | None:
        if not self._grows:
            return False
        if self._reached and self.surely + self._reached > free:
            return True
        return False if self.most <= free and not (self._open_start or self._open_growth) else None


def surely(buffer: PlanBuffer) -> int:
    """Bytes that a line takes in any case: a bound from above says nothing about that."""
    if buffer.method in _SURE and not buffer.upper_bound:
        return buffer.bytes or 0
    return buffer.at_least or 0


def _fits(starts: bool | None, outgrows: bool | None, roomy: bool) -> bool | None:
    if starts is False:
        return False
    return True if starts and outgrows is False and roomy else None


def _counted(one: PlanGrowth, room: int | None) -> PlanGrowth:
    """With how much of it fills what the start leaves, if that can be."""
    over = room is not None and (one.most is None or one.most > room)
    if room is None or not one.each or not over:
        return one
    return msgspec.structs.replace(one, enough=max(0, room) // one.each + 1)


def placed(buffers: Sequence[PlanBuffer], pools: Sequence[PlanPool]) -> tuple[PlanBuffer, ...]:
    """The same lines, each with the pool that holds it."""
    homes = [pool_of(one.device, pools) for one in buffers]
    return tuple(
        msgspec.structs.replace(one, pool=home.name if home else "")
        for one, home in zip(buffers, homes, strict=True)
    )


def all_fit(pools: Sequence[PlanPool]) -> bool | None:
    """The verdict over all pools that something is planned in."""
    verdicts = {pool.fits for pool in pools if pool.planned or pool.fits is False}
    return False if False in verdicts else None if None in verdicts or not verdicts else True


def all_start(pools: Sequence[PlanPool]) -> bool | None:
    """Whether every pool that something is planned in holds what is taken at the start."""
    verdicts = {pool.starts for pool in pools if pool.planned or pool.starts is False}
    return False if False in verdicts else None if None in verdicts or not verdicts else True


def any_outgrows(pools: Sequence[PlanPool]) -> bool | None:
    """Whether what grows can take more than some pool has."""
    verdicts = {pool.outgrows for pool in pools if pool.planned or pool.outgrows}
    return True if True in verdicts else None if None in verdicts or not verdicts else False
