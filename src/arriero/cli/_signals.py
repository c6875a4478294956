"""Ctrl-C and SIGTERM: what is open gets closed on the way out, whatever code they meet."""

from __future__ import annotations

import signal
import sys
import time
from typing import Final

_CLEAN_UP_SECONDS: Final = 2.0
"""A second signal within this time is the same wish to stop, not the wish to stop faster."""
_STOPPING: Final = [signal.SIGINT, signal.SIGTERM]
"""Signals that end the program."""
if sys.platform != "win32":
    _STOPPING.append(signal.SIGALRM)  # only ever its own
_stopped_at = float("-inf")


def catch() -> None:
    """From now on, a wish to stop is a KeyboardInterrupt."""
    sys.unraisablehook = _lost
    for number in _STOPPING:
        signal.signal(number, _stop)


def ignore() -> None:
    """The program is ending already."""
    for number in _STOPPING:
        signal.signal(number, signal.SIG_IGN)


def _stop(_number: int, _frame: object) -> None:
    """End by a KeyboardInterrupt, also on SIGTERM: what is open gets closed on the way out."""
    global _stopped_at
    now = time.monotonic()
    if now - _stopped_at > _CLEAN_UP_SECONDS:
        _stopped_at = now
        # asyncio would log a traceback of the task that the interrupt happened to meet.
        if asyncio_log := sys.modules.get("asyncio.log"):
            asyncio_log.logger.disabled = True
        raise KeyboardInterrupt


def _lost(lost: sys.UnraisableHookArgs) -> None:
    """Interrupt again, soon, where an interrupt met a finalizer, in which Python drops it."""
    global _stopped_at
    if sys.platform != "win32" and issubclass(lost.exc_type, KeyboardInterrupt):
        _stopped_at = float("-inf")
        signal.setitimer(signal.ITIMER_REAL, 0.001)
    else:
        sys.__unraisablehook__(lost)
