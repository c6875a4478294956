"""One launch of the engine and what it showed."""

from __future__ import annotations

from typing import Any

import msgspec

from arriero.base.buffers import HOST
from arriero.base.words import TrialOutcome
from arriero.logs.model import Buffer, Effective, Failure, Notice


class Peak(msgspec.Struct, frozen=True, kw_only=True):
    """The most that was seen of each, in bytes. ``address_space`` is VmPeak, ``anonymous`` is
    RssAnon + VmSwap, ``rss`` VmHWM."""

    address_space: int | None = None
    anonymous: int | None = None
    rss: int | None = None
    cgroup: int | None = None
    device: dict[str, int] = {}


class Requests(msgspec.Struct, frozen=True, kw_only=True):
    sent: int = 0
    ok: int = 0
    failed: int = 0


class Speed(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens per second, as the server reports them."""

    prompt_tps: float | None = None
    predict_tps: float | None = None


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One step of the standard load or of a verification, with what shows that it happened."""

    name: str
    sent: int
    ok: int
    failed: int
    shown_by: str | None
    """The log line or counter that shows it; null when nothing did."""
    detail: str = ""


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """Memory at one moment. ``at`` is seconds since the launch."""

    at: float
    address_space: int | None = None
    anonymous: int | None = None
    requests: int = 0
    device: dict[str, int] = {}


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One launch of the engine and what it showed."""

    n: int
    purpose: str
    change: dict[str, tuple[Any, Any]]
    argv: tuple[str, ...]
    env: dict[str, str]
    outcome: TrialOutcome
    failure: Failure | None
    secondary: tuple[Failure, ...] = ()
    buffers: tuple[Buffer, ...]
    notices: tuple[Notice, ...] = ()
    effective: Effective
    ready_s: float | None
    load_s: float | None = None
    """When the load began: after the last threads of the server had started."""
    seconds: float
    exit_status: int | None = None
    """Exit status of the engine, negative for a signal; null if Arriero ended it."""
    peak: Peak
    headroom: int | None
    """Bytes left at the peak, of the limit or of the host's free memory, whichever is less."""
    requests: Requests
    steps: tuple[Step, ...] = ()
    skipped: tuple[str, ...] = ()
    growth_per_request: int | None = None
    """Bytes of RssAnon + VmSwap per request over the load, by a fit over its samples."""
    checkpoint_bytes: int | None = None
    """Size of one context checkpoint, as the engine logged it."""
    speed: Speed
    samples: tuple[Sample, ...] = ()
    valid: bool
    why_invalid: str | None
    log_tail: tuple[str, ...] = ()
    on_host: tuple[str, ...] = ()
    """Of the devices that its buffers and its failure name, those that are the host's memory."""

    def memory_of(self, device: str | None) -> str:
        """Whose memory one of these devices is: ``host``, or the device's own; null is the host."""
        return HOST if device is None or device in self.on_host else device
