"""``arriero skeleton``: a small or weightless model for reproducing memory cases."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Literal

from arriero.base.errors import UsageError
from arriero.base.sizes import human
from arriero.gguf import presets
from arriero.gguf.shape import Shape
from arriero.gguf.writer import write_model
from arriero.record import SkeletonRecord

PRESETS = {
    shape.name: shape
    for shape in (
        presets.LADDER_HYBRID,
        presets.LADDER_RECURRENT,
        presets.LADDER_DENSE,
        presets.LADDER_SWA,
    )
}


def write(
    path: Path,
    *,
    arch: str | None,
    preset: str | None,
    weights: Literal["random", "zeros"],
    dimensions: dict[str, int],
    seed: int = 0,
) -> SkeletonRecord:
    """Write a model of an architecture, or of a named shape, with some dimensions changed.

    Raises:
        UsageError: Neither or both of ``arch`` and ``preset``, an unknown name or dimension, or the
            file exists.
        ArrieroError: The file cannot be written.
    """
    shape = _shape(arch, preset)
    known = {f.name for f in dataclasses.fields(Shape)} - {"arch", "name", "tensor_type", "tied"}
    if unknown := sorted(set(dimensions) - known):
        raise UsageError(f"no dimension {unknown[0]!r}", hint="known: " + ", ".join(sorted(known)))
    changes: dict[str, Any] = dict(dimensions)
    shape = dataclasses.replace(shape, **changes)
    write_model(path, shape, weights=weights, seed=seed)
    return SkeletonRecord(
        path=str(path),
        arch=shape.arch,
        weights=weights,
        file_bytes=path.stat().st_size,
        disk_bytes=_disk(path),
    )


def _shape(arch: str | None, preset: str | None) -> Shape:
    if (arch is None) == (preset is None):
        raise UsageError("give either --arch or --preset", hint="arriero skeleton --help")
    if arch is not None:
        return presets.tiny(arch)
    found = PRESETS.get(preset or "")
    if found is None:
        raise UsageError(f"no preset {preset!r}", hint="known: " + ", ".join(PRESETS))
    return found


def _disk(path: Path) -> int | None:
    blocks = getattr(path.stat(), "st_blocks", None)
    return None if blocks is None else blocks * 512


def text(record: SkeletonRecord) -> str:
    """One line for people."""
    disk = "" if record.disk_bytes is None else f", {human(record.disk_bytes)} on disk"
    return f"wrote {record.path}: {record.arch}, {human(record.file_bytes)}{disk}"
