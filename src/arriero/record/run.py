"""What one real run took: later plans are corrected by it."""

from __future__ import annotations

from typing import Literal

import msgspec

from arriero.base.words import Component, Method, TrialOutcome
from arriero.record.baseline import DeviceRecord, EngineRecord
from arriero.record.trial import Peak


class RunSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the buffers of a context depend on besides model, build and devices, as in force."""

    n_ctx: int
    n_ctx_seq: int
    n_seq_max: int
    kv_unified: bool
    n_batch: int
    n_ubatch: int
    n_rs_seq: int
    n_outputs_max: int | None
    flash_attn: str
    type_k: str
    type_v: str
    layers: tuple[str, ...]
    """Where layers are, the output layer last: ``("CPU*4", "CUDA0*29")``."""
    flags: tuple[str, ...] = ()
    """Everything else that is not as it is by default, and placement of single tensors."""


class RunBuffer(msgspec.Struct, frozen=True, kw_only=True):
    """One component on one device: what a run took beside what was said before, in bytes."""

    component: Component
    device: str
    taken: int | None
    """By the engine's own size lines, or by its refusal; null where it got no further."""
    rounding: int = 0
    """How far ``taken`` can be off: size lines have two digits of a MiB."""
    planned: int | None
    """Without asking the engine; null if nothing was planned there."""
    method: Method | None
    """How ``planned`` was known."""
    asked: int | None = None
    """What the engine's dry run said; null if it was not asked or had no answer."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """What one real run took. Later plans are corrected by it."""

    schema: Literal["arriero.run/1"] = "arriero.run/1"
    id: str
    taken_at: str
    """UTC, ISO 8601."""
    model: str
    """Fingerprint of everything in the header that decides sizes: no name, no path."""
    arch: str
    engine: EngineRecord
    devices: tuple[DeviceRecord, ...]
    settings: RunSettings
    outcome: TrialOutcome
    buffers: tuple[RunBuffer, ...]
    peak: Peak
