"""What a log says, as values: failures, buffers, notices. Shapes are those of the contract."""

from __future__ import annotations

import msgspec

from arriero.base.words import Component, Evidence, Kind, LogOutcome, Phase, Role


class Cpu(msgspec.Struct, frozen=True, kw_only=True):
    """What a binary that ended at an instruction its CPU does not have was compiled for.

    Features have the engine's own names (``AVX512_BF16``). ``needs`` is empty where nothing says
    what it was compiled for, ``lacks`` null where the CPU is not known: a log does not show it.
    """

    needs: tuple[str, ...] = ()
    lacks: tuple[str, ...] | None = None


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """One failure, named by the contract.

    ``bytes`` is what the failing message says; ``buffer_bytes`` the whole buffer when the message
    names only a chunk of it and the log lets one know. ``line`` counts from 1. ``cpu`` is null
    unless it was a binary for another CPU.
    """

    kind: Kind
    component: Component | None = None
    device: str | None = None
    bytes: int | None = None
    buffer_bytes: int | None = None
    phase: Phase | None = None
    fatal: bool
    line: int
    text: str
    not_this: tuple[str, ...] = ()
    evidence: Evidence = Evidence.NAMED
    cpu: Cpu | None = None


class Buffer(msgspec.Struct, frozen=True, kw_only=True):
    """One buffer that the engine really allocated, in bytes (from MiB with two digits)."""

    component: Component
    device: str
    bytes: int
    line: int
    role: Role = Role.MAIN


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """Something worth knowing that is not a failure. ``count``: how often, if its line says so."""

    id: str
    line: int
    text: str
    count: int | None = None


class EngineTag(msgspec.Struct, frozen=True, kw_only=True):
    """The engine as the log names it; ``build`` is null when the binary does not know it."""

    build: int | None = None
    commit: str | None = None
    version: str | None = None


class Effective(msgspec.Struct, frozen=True, kw_only=True):
    """The values that the engine says it runs with. Null where the log does not say."""

    n_ctx: int | None = None
    n_ctx_seq: int | None = None
    n_seq_max: int | None = None
    n_batch: int | None = None
    n_ubatch: int | None = None
    kv_unified: bool | None = None
    n_rs_seq: int | None = None
    n_gpu_layers: int | None = None
    flash_attn: str | None = None


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """Everything read from one log (or from one router child's part of it)."""

    era: str
    child: str | None
    engine: EngineTag
    outcome: LogOutcome
    failure: Failure | None
    secondary: tuple[Failure, ...]
    buffers: tuple[Buffer, ...]
    notices: tuple[Notice, ...]
    effective: Effective
