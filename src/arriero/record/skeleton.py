"""A model that was written."""

from __future__ import annotations

from typing import Literal

import msgspec


class SkeletonScale(msgspec.Struct, frozen=True, kw_only=True):
    """Something there is less of than in the source."""

    what: Literal["layers", "experts", "vocabulary", "weights"]
    """Layers without NextN layers, experts of a layer, tokens, bytes of all tensors."""
    original: int
    written: int


class SkeletonRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A model that was written, sizes in bytes."""

    schema: Literal["arriero.skeleton/1"] = "arriero.skeleton/1"
    path: str
    arch: str
    weights: str
    file_bytes: int
    disk_bytes: int | None
    """What it takes on disk; null where the system does not say."""
    paths: tuple[str, ...] = ()
    """Every file of a split set, the first of them ``path``."""
    source: str | None = None
    """The model that the header comes from; null where it was made from nothing."""
    kept: tuple[str, ...] = ()
    """Keys of the header that are as they were; so are all tensors, unless shrunk."""
    replaced: tuple[str, ...] = ()
    """Keys that say something neutral instead; a vocabulary keeps its size."""
    dropped: tuple[str, ...] = ()
    """Keys that no memory depends on."""
    shrunk: tuple[SkeletonScale, ...] = ()
    same_memory: tuple[str, ...] = ()
    """What the engine takes as much memory for as with the source."""
