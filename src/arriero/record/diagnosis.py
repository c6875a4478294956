"""Why a command does not run, and the smallest change with which it does."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from arriero.base.buffers import HOST
from arriero.base.words import Component, Cost, Kind, Method
from arriero.logs.model import Failure
from arriero.record.baseline import Baseline
from arriero.record.trial import Requests, Step, Trial


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The failure of the command as given: the first allocation that failed, not the last error."""

    kind: Kind
    component: Component | None
    device: str | None
    bytes: int | None
    trial: int | None
    """The trial that showed it; null if it was read from a log."""
    failure: Failure
    on_host: bool = False
    """Whether the device is the host's memory."""

    @property
    def memory(self) -> str:
        """Whose memory it was: ``host``, or the device's own; null is the host."""
        return HOST if self.device is None or self.on_host else self.device


class FailsWith(msgspec.Struct, frozen=True, kw_only=True):
    kind: Kind
    component: Component | None


class Boundary(msgspec.Struct, frozen=True, kw_only=True):
    """Where one variable stops working, everything in ``held`` kept.

    Null unless a trial showed it.
    """

    served: int | None
    ready: int | None
    fails: int | None
    fails_with: FailsWith | None
    held: dict[str, Any]
    trials: tuple[int, ...]
    step: int = 1
    """Smallest change that the server does not round away (256 tokens for ``-c``)."""
    band: tuple[int, int] | None = None
    """From the largest value seen working to the smallest seen failing, where repeats disagreed."""
    note: str = ""


class Slope(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of one component for each slot, token, micro-batch row or request."""

    component: Component
    per: Literal["slot", "token", "ubatch", "request"]
    bytes: int
    method: Method
    note: str = ""


class WorstCase(msgspec.Struct, frozen=True, kw_only=True):
    """All checkpoints taken and the prompt cache full, against the limit."""

    planned: int | None
    limit: int | None
    fits: bool | None


class Recommendation(msgspec.Struct, frozen=True, kw_only=True):
    argv: tuple[str, ...]
    env: dict[str, str]
    changes: tuple[str, ...]
    costs: tuple[Cost, ...]
    verified: bool
    skipped: tuple[str, ...]
    worst_case: WorstCase
    trial: int | None = None
    requests: Requests = Requests()
    headroom: int | None = None
    steps: tuple[Step, ...] = ()


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """A controlled record of what was tried and what it showed."""

    schema: Literal["arriero.diagnosis/1"] = "arriero.diagnosis/1"
    id: str
    baseline: Baseline
    trials: tuple[Trial, ...]
    verdict: Verdict | None
    boundary: dict[str, Boundary]
    slopes: tuple[Slope, ...]
    recommendation: Recommendation | None
    not_tried: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    complete: bool
    """False when it was interrupted or ran out of time: what is there is valid all the same."""
    interrupted: bool = False
    launches: int
    seconds: float
