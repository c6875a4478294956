"""Limits that fit the machine: what a start takes here, and so much more."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from arriero.engine import find_engine
from arriero.process import clean_environment
from tests.provoked.provoking import Lab


@cache
def above(engine: Path, model: Path, flags: str, room: int) -> int:
    """Bytes of address space: the most that the start with ``flags`` has taken when it is ready,
    and ``room`` more. Threads and libraries take another part of it on each machine."""
    with tempfile.TemporaryDirectory() as scratch:
        found = find_engine(
            None, option=str(engine), environ=clean_environment(), cwd=engine.parent
        )
        return Lab(found, Path(scratch)).ready_peak(model, *flags.split()) + room
