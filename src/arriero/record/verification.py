"""A load on a server, and whether it got through it."""

from __future__ import annotations

from typing import Literal

import msgspec

from arriero.logs.model import Failure
from arriero.record.baseline import Baseline
from arriero.record.trial import Peak, Requests, Speed, Step, Trial


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """A load on a server, and whether it got through it."""

    schema: Literal["arriero.verification/1"] = "arriero.verification/1"
    id: str
    target: str
    verified: bool
    steps: tuple[Step, ...]
    skipped: tuple[str, ...]
    requests: Requests
    failure: Failure | None
    peak: Peak
    headroom: int | None
    growth_per_request: int | None
    speed: Speed
    trial: Trial | None = None
    baseline: Baseline | None = None
    notes: tuple[str, ...] = ()
    complete: bool = True
    """False when it was interrupted."""
    seconds: float
