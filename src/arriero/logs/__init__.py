"""Log text of any era → failure, buffers, notices.

The reader is loaded when it is first used: the documents need the words of :mod:`.model` alone, and
most commands read no log.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from arriero.logs.reader import LogReader, Sighting, overall, principal
    from arriero.logs.stream import read_log

__all__ = ["LogReader", "Sighting", "overall", "principal", "read_log"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "stream" if name == "read_log" else "reader"
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)
