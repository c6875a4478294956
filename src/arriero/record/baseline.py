"""What was true before the first trial: engine, model, devices, memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from arriero.base.words import LimitKind, MemoryClass

if TYPE_CHECKING:
    from arriero.gguf import Model


class LimitRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A memory limit that Arriero set for the trials. Address space is not RAM."""

    bytes: int
    kind: LimitKind


class DeviceRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A device as the engine lists it, sizes in bytes as it reports them."""

    name: str
    description: str
    total: int | None
    free: int | None


class PoolRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One pool of memory: a card, the host, or host and device together."""

    name: str
    devices: tuple[str, ...]
    total: int | None
    free: int | None
    limited_by: str
    usable: bool = True
    note: str = ""


class HolderRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A process that already holds device memory."""

    pid: int
    name: str
    device: str
    bytes: int | None


class ModelRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The model as its header describes it; null where there is no readable header."""

    path: str
    arch: str | None = None
    name: str | None = None
    memory_class: MemoryClass = MemoryClass.UNKNOWN
    n_layer: int | None = None
    n_recurrent_layer: int | None = None
    n_ctx_train: int | None = None
    n_vocab: int | None = None
    file_bytes: int | None = None
    problem: str = ""

    @classmethod
    def of(cls, path: str, about: Model) -> ModelRecord:
        """The record of a model whose header was read; ``path`` as the user typed it."""
        return cls(
            path=path,
            arch=about.arch,
            name=about.name,
            memory_class=about.memory_class,
            n_layer=about.n_layer,
            n_recurrent_layer=about.n_recurrent_layer,
            n_ctx_train=about.n_ctx_train,
            n_vocab=about.n_vocab,
            file_bytes=about.file_bytes,
        )


class EngineRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Which engine ran and where it was found."""

    path: str
    found_by: str
    version: str | None
    build: int | None
    commit: str | None
    backends: tuple[str, ...] = ()


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """What was true before the first trial."""

    engine: EngineRecord
    model: ModelRecord | None
    devices: tuple[DeviceRecord, ...]
    pools: tuple[PoolRecord, ...]
    holders: tuple[HolderRecord, ...]
    visibility: dict[str, str]
    """``CUDA_VISIBLE_DEVICES`` and its like, as set for the engine."""
    argv: tuple[str, ...]
    """The command as the user typed it."""
    effective: dict[str, str]
    """Flag → value that is in force: flags and ``LLAMA_ARG_*``, the last one wins."""
    given: dict[str, str] = {}
    """The same of the flags that trials vary, under the names that a trial's ``change`` has."""
    limit: LimitRecord | None
    system: str
    taken_at: str
    """UTC, ISO 8601."""
