"""Pools of memory, and the processes that hold some of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arriero.engine import ListedDevice


@dataclass(frozen=True)
class Pool:
    """One pool of memory, in bytes.

    ``name`` is ``host``, ``shared`` (host and devices that use the same memory) or a device's name.
    ``free`` is the least that any limit leaves, ``total`` the size under this limit, and
    ``limited_by`` its name. ``usable`` is false if the driver's numbers cannot be true.
    """

    name: str
    devices: tuple[str, ...]
    total: int | None
    free: int | None
    limited_by: str
    usable: bool = True
    note: str = ""
    listed: tuple[ListedDevice, ...] = ()
    """Its devices as the engine lists them, with the numbers that ``--fit`` uses."""
    physical: int | None = None
    """All RAM, if the pool contains host memory."""
    knob: str = ""
    """The setting that limits it; empty if only its size does."""
    move_with: str = ""
    """A command that changes this setting; the user decides whether to run it."""


@dataclass(frozen=True)
class Holder:
    """A process that holds device memory; ``bytes`` is None if the driver does not say.

    ``device`` is the driver's own name (``nvml0``, ``card1``): the engine's numbering depends on
    which devices it sees.
    """

    pid: int
    name: str
    device: str
    bytes: int | None
