"""Which memory a buffer is in, by the name of its type as llama.cpp prints it.

``CPU``, ``CPU_Mapped``, ``CPU_REPACK``, ``AMX``, ``CUDA_Host``, ``Vulkan_Host``: the host's.
``CUDA0``, ``MTL0_Mapped``, ``RPC0[HOST:PORT]``: the device's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Protocol, TypeVar

HOST: Final = "host"
"""The name of the host among the devices of a pool."""
_ON_HOST: Final = re.compile(r"CPU\w*|AMX|BLAS|\w+_Host")
_OF_DEVICE: Final = re.compile(r"(\w{1,60}?\d{1,9})(?:_Mapped|_Split|\[.{0,255}\])?\Z")


class _Pool(Protocol):
    @property
    def devices(self) -> tuple[str, ...]: ...


P = TypeVar("P", bound=_Pool)


def is_on_host(buffer: str) -> bool:
    """Whether a buffer type is host memory, pinned and repacked memory included."""
    return _ON_HOST.fullmatch(buffer) is not None


def pool_of(buffer: str, pools: Sequence[P]) -> P | None:
    """The pool that holds the memory of a device or buffer type; None if no pool does."""
    match = _OF_DEVICE.match(buffer)
    names = (HOST,) if is_on_host(buffer) else (buffer, match[1] if match else buffer)
    return next((pool for name in names for pool in pools if name in pool.devices), None)
