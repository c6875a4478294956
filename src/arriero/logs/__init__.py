"""Log text of any era → failure, buffers, notices."""

from __future__ import annotations

from arriero.logs.reader import LogReader, Mark, overall, principal
from arriero.logs.stream import read_log

__all__ = ["LogReader", "Mark", "overall", "principal", "read_log"]
