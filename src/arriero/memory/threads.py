"""Address space of threads: a stack each, reserved when the server starts, and malloc's arenas."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

GLIBC_STACK: Final = 8 << 20
"""Stack of a thread where the soft limit is unlimited or unknown."""


def http_threads(slots: int, asked: int | None, cpus: int | None = None) -> int:
    """HTTP threads of a server with so many slots (tools/server/server-http.cpp).

    Args:
        asked: Value of ``--threads-http``, if any.
    """
    if asked is not None and asked > 0:
        return asked
    return max(slots + 4, (cpus or os.cpu_count() or 1) - 1)


def stack_bytes() -> int:
    """Bytes of address space that the stack of one thread takes here."""
    if sys.platform != "win32":
        with suppress(ImportError):
            import resource

            soft = resource.getrlimit(resource.RLIMIT_STACK)[0]
            return GLIBC_STACK if soft == resource.RLIM_INFINITY else int(soft)
    return GLIBC_STACK


_LIBRARIES: Final = 384 << 20
"""Code, heap and the other threads of a server of build 10434 on the CPU: 323 to 330 MiB."""
_ARENA: Final = 64 << 20
_ARENAS_PER_CPU: Final = 8
_OTHER_THREADS: Final = 4


def reserved_address_space(
    slots: int, asked: int | None, environ: Mapping[str, str], cpus: int | None = None
) -> int:
    """Address space of a serving process that is in no buffer and in no other line of a plan.

    glibc gives a thread that allocates an arena of 64 MiB, up to eight per core in all
    (``MALLOC_ARENA_MAX`` sets another number). Each HTTP thread that a request wakes is one.
    """
    threads = http_threads(slots, asked, cpus)
    most = _ARENAS_PER_CPU * (cpus or os.cpu_count() or 1)
    said = environ.get("MALLOC_ARENA_MAX", "")
    most = int(said) if said.isdecimal() and int(said) else most
    # the first arena is the heap; making one takes two for a moment
    arenas = min(most - 1, threads + _OTHER_THREADS)
    return _LIBRARIES + stack_bytes() * threads + _ARENA * (arenas + (arenas > 0))
