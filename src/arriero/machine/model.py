"""Memory as places that fill up, and who fills them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arriero.engine import ListedDevice


@dataclass(frozen=True)
class Pool:
    """One pool of memory, in bytes.

    ``name`` is ``host``, ``shared`` (host and devices that use the same memory) or a device's name.
    ``free`` is the least that any limit leaves, ``total`` the size that this limit gives, and
    ``limited_by`` its name. ``usable`` is false where what the driver says cannot be true.
    """

    name: str
    devices: tuple[str, ...]
    total: int | None
    free: int | None
    limited_by: str
    usable: bool = True
    note: str = ""
    listed: tuple[ListedDevice, ...] = ()
    """Its devices as the engine lists them: their own figures, which ``--fit`` goes by."""
    physical: int | None = None
    """All RAM, where the host is in it."""
    knob: str = ""
    """The setting that limits it; empty where nothing but its size does."""
    move_with: str = ""
    """The command that moves the knob, for the user to decide on."""


@dataclass(frozen=True)
class Holder:
    """A process that holds device memory; ``bytes`` is None where the driver does not say.

    ``device`` is the driver's own name (``nvml0``, ``card1``): how the engine numbers its devices
    depends on what it is shown.
    """

    pid: int
    name: str
    device: str
    bytes: int | None
