"""What a diagnosis starts from, and the arithmetic that all its parts share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from arriero.base.words import Component, LimitKind
from arriero.command import Command
from arriero.launch.context import Context, context
from arriero.process import Limit
from arriero.record import Baseline, Diagnosis, Explanation, Plan, Trial
from arriero.trial import Bench


@dataclass(frozen=True, order=True)
class Point:
    """One setting of the two variables that have boundaries, and the micro-batch."""

    slots: int
    tokens: int
    """``-c``: tokens of all slots together."""
    unified: bool = False
    n_ubatch: int | None = None

    @property
    def context(self) -> Context:
        return context(self.tokens, self.slots, unified=self.unified)


@dataclass(frozen=True)
class Account:
    """What a failure is about: the memory that ran out, and how much of it there is.

    ``kind`` is that of the limit that was set; without one it is a ``device`` of the engine's, or
    the host where both are null.
    """

    kind: LimitKind | None
    device: str | None
    capacity: int | None

    def used(self, trial: Trial) -> int | None:
        """Bytes that a trial took of it at its peak."""
        if self.kind is LimitKind.ADDRESS_SPACE:
            return trial.peak.address_space
        if self.kind is LimitKind.CGROUP:
            return trial.peak.cgroup
        if self.device is not None:
            return sum(b.bytes for b in trial.buffers if b.device == self.device) or None
        return trial.peak.anonymous

    def used_when_ready(self, trial: Trial) -> int | None:
        """The same before the first request, so that what grows with requests is left out."""
        if trial.ready_s is None or trial.load_s is None:
            return None
        if self.device is not None and self.kind is None:
            return self.used(trial)
        idle = [s for s in trial.samples if s.requests == 0 and s.at <= trial.load_s]
        if self.kind is LimitKind.ADDRESS_SPACE:
            values = [s.address_space for s in idle if s.address_space]
        else:
            values = [s.anonymous for s in idle if s.anonymous]
        return max(values, default=None)


class Sizes(Protocol):
    """Bytes of the buffers at a point, on all devices or one; null where it cannot be said."""

    def total(self, points: Sequence[Point], device: str | None = None) -> list[int | None]: ...


@dataclass(frozen=True)
class Case:
    """One command to be diagnosed, with everything that was found out before the first start."""

    id: str
    command: Command
    bench: Bench
    baseline: Baseline
    planned: Sizes | None
    plan: Callable[[Command, bool], Plan | None]
    """Of a command, where one is possible; by formulas alone, or the engine is asked too."""
    host_free: int | None
    """Bytes that the host pool has free, where a command could take the machine down."""
    as_given: bool = False
    from_log: Explanation | None = None
    max_time: float | None = None
    max_launches: int = 24
    verify_requests: int = 64
    save: Callable[[Diagnosis], None] = lambda _: None
    ran: Callable[[Command, Trial], None] = lambda command, trial: None
    """Told of every trial that is valid, and of its command."""
    on_step: Callable[[str, str], None] = lambda text, why: None
    """Told what is tried next, and why."""
    settle: Callable[[], str | None] = lambda: None
    """Waits for memory to come back after a trial; says what did not."""
    weightless: Callable[[], Path] | None = None
    """Writes a copy of the model without its weights: same memory, and quick to start."""

    @property
    def limit(self) -> Limit | None:
        return self.bench.limit


def buffers_of(trial: Trial, component: Component, device: str | None = None) -> int | None:
    """Bytes of one component over all devices, or on one; null if the trial printed none."""
    found = [
        b.bytes
        for b in trial.buffers
        if b.component is component and (device is None or b.device == device)
    ]
    return sum(found) if found else None
