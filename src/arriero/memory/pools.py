"""Whether the pools of a machine hold what is planned, with a margin."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

from arriero.base.errors import UsageError
from arriero.base.sizes import MIB, parse_size
from arriero.base.words import Component
from arriero.machine import Pool
from arriero.machine.host import ULIMIT
from arriero.machine.pools import SOFTWARE
from arriero.record import PlanBuffer, PlanPool

P = TypeVar("P", Pool, PlanPool)
HOST: Final = "host"
_ON_HOST: Final = re.compile(r"CPU\w*|\w+_Host")
_BUFFER: Final = re.compile(r"(\w+?\d+)(?:_Mapped|_Split|\[.*\])?\Z")
_ON_WORKER: Final = re.compile(r"RPC(\d{1,3})\[(.+)\]")
_GROWING: Final = frozenset({Component.PROMPT_CACHE, Component.CHECKPOINTS})
_HOST_MARGIN: Final = 256 * MIB
_UNCOUNTED: Final = (
    "address space, not RAM: the margin holds libraries, stacks and arenas of threads, not what "
    "drivers of devices reserve"
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


def is_on_host(device: str) -> bool:
    """Whether a buffer type is memory of the host."""
    return _ON_HOST.fullmatch(device) is not None


def planned_pools(
    pools: Sequence[Pool],
    buffers: Sequence[PlanBuffer],
    margins: Mapping[str, int],
    reserved: int = 0,
) -> tuple[PlanPool, ...]:
    """Every pool with what is planned in it.

    A pool fits when its headroom is at least the margin and nothing in it is unknown; one that
    already lacks room does not, whatever is unknown.

    Args:
        margins: Of devices that the model is spread over, as the engine's own fit would keep them.
        reserved: Address space that threads and libraries take: margin where that is the limit.
    """
    return tuple(_planned(pool, pools, buffers, margins, reserved) for pool in pools)


def _planned(
    pool: Pool,
    pools: Sequence[Pool],
    buffers: Sequence[PlanBuffer],
    margins: Mapping[str, int],
    reserved: int,
) -> PlanPool:
    inside = [b for b in buffers if pool_of(b.device, pools) is pool]
    planned = sum(b.bytes or 0 for b in inside)
    growing = sum(b.bytes or 0 for b in inside if b.component in _GROWING)
    margin = max(margins.get(device, 0) for device in pool.devices)
    address_space = pool.limited_by == ULIMIT
    if HOST in pool.devices:
        margin = max(margin, _HOST_MARGIN, int(_HOST_SHARE * (pool.free or 0)))
        margin += reserved * address_space
    headroom = None if pool.free is None else pool.free - planned
    fits: bool | None = None
    if headroom is not None and pool.usable:
        unknown = any(b.bytes is None for b in inside)
        fits = False if headroom < margin else None if unknown else True
    return PlanPool(
        name=pool.name,
        devices=pool.devices,
        total=pool.total,
        free=pool.free,
        limited_by=pool.limited_by,
        planned=planned,
        at_start=planned - growing,
        margin=margin,
        headroom=headroom,
        fits=fits,
        usable=pool.usable,
        note="; ".join(filter(None, (pool.note, _UNCOUNTED if address_space else ""))),
        knob=pool.knob,
        move_with=pool.move_with,
    )


def pool_of(device: str, pools: Sequence[P]) -> P | None:
    """The pool that a device's or buffer type's memory comes from; null if it is in none."""
    if is_on_host(device):
        return next((one for one in pools if one.name == HOST or HOST in one.devices), None)
    for pool in pools:
        if device in pool.devices:
            return pool
    match = _BUFFER.match(device)
    name = match[1] if match else device
    return next((pool for pool in pools if name in pool.devices), None)


def all_fit(pools: Sequence[PlanPool]) -> bool | None:
    """The verdict over all pools that something is planned in."""
    verdicts = {pool.fits for pool in pools if pool.planned or pool.fits is False}
    return False if False in verdicts else None if None in verdicts or not verdicts else True
