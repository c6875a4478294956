"""Whether an engine gets through what would otherwise end it while serving."""

from __future__ import annotations

from typing import Literal

import msgspec

from arriero.record.baseline import EngineRecord


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """What a weightless copy of a model showed with an engine, devices and settings."""

    schema: Literal["arriero.probe/1"] = "arriero.probe/1"
    id: str
    """Made of what the result holds for: engine, devices, model's shape, settings."""
    at: str
    """UTC, ISO 8601."""
    outcome: Literal["held", "broke", "could not run"]
    """``broke``: it ended without ``change`` and served with it."""
    change: dict[str, str] = {}
    """The flags with which it served."""
    why: str = ""
    """What was seen."""
    engine: EngineRecord
    devices: tuple[str, ...] = ()
    argv: tuple[str, ...] = ()
    """The command that was tried, without secrets."""
    launches: int = 0
    seconds: float = 0.0
