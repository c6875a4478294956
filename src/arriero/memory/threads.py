"""Address space of the HTTP threads: one stack each, reserved when the server starts."""

from __future__ import annotations

import os
import sys
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
