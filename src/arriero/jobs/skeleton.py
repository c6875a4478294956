"""``arriero skeleton``: a small or weightless model for reproducing memory cases."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

from arriero.base.errors import UsageError
from arriero.base.paths import StrPath
from arriero.gguf import Header, LazyArray, open_model, presets, read_source, skeleton
from arriero.gguf.shape import MIXES, Shape
from arriero.gguf.writer import write_model
from arriero.memory.hparams import Hparams, UnknownArchitectureError, read_hparams
from arriero.record import SkeletonRecord, SkeletonScale

PRESETS: Final = {
    shape.name: shape
    for shape in (
        presets.LADDER_HYBRID,
        presets.LADDER_RECURRENT,
        presets.LADDER_DENSE,
        presets.LADDER_SWA,
        *presets.PUBLISHED,
    )
}
_ALL_MEMORY: Final = ("weights", "kv", "rs", "compute", "output")

# --- from nothing -------------------------------------------------------------------------------


def write(
    path: StrPath,
    *,
    arch: str | None = None,
    preset: str | None = None,
    weights: Literal["random", "zeros"] | None = None,
    dimensions: Mapping[str, int] | None = None,
    seed: int = 0,
) -> SkeletonRecord:
    """Write a model of an architecture, or of a named shape, with some dimensions changed.

    Args:
        weights: Null writes random ones where the model's tensor type has any.

    Raises:
        UsageError: Neither or both of ``arch`` and ``preset``, an unknown name or dimension, or the
            file exists.
        ArrieroError: The file cannot be written.
    """
    path, shape = Path(path), _shape(arch, preset)
    known = {f.name for f in dataclasses.fields(Shape)} - {"arch", "name", "tensor_type", "tied"}
    if unknown := sorted(set(dimensions or {}) - known):
        raise UsageError(f"no dimension {unknown[0]!r}", hint="known: " + ", ".join(sorted(known)))
    changes: dict[str, Any] = dict(dimensions or {})
    shape = dataclasses.replace(shape, **changes)
    if weights is None:
        weights = "zeros" if shape.tensor_type in MIXES else "random"
    write_model(path, shape, weights=weights, seed=seed)
    return SkeletonRecord(
        path=str(path),
        arch=shape.arch,
        weights=weights,
        file_bytes=path.stat().st_size,
        disk_bytes=_disk([path]),
        paths=(str(path),),
    )


def _shape(arch: str | None, preset: str | None) -> Shape:
    if (arch is None) == (preset is None):
        raise UsageError(
            "give a model, or --arch, or --preset: one of them", hint="arriero skeleton --help"
        )
    if arch is not None:
        return presets.tiny(arch)
    found = PRESETS.get(preset or "")
    if found is None:
        raise UsageError(f"no preset {preset!r}", hint="known: " + ", ".join(PRESETS))
    return found


# --- of a model ---------------------------------------------------------------------------------


def write_of(
    model: StrPath,
    path: StrPath,
    *,
    shrink: bool = False,
    verbatim: bool = False,
    environ: Mapping[str, str] | None = None,
) -> SkeletonRecord:
    """Write the header of a model, local or remote, with a hole where the weights were.

    Names, texts and tokens are replaced, see :mod:`arriero.gguf.skeleton`. A split set stays one,
    ``NAME-00001-of-0000N.gguf`` beside each other, because the engine maps each file by itself.

    Args:
        model: As :func:`arriero.gguf.open_model` takes it; any part of a split set.
        shrink: Leave out layers, experts and tokens, and make one file of a set.
        verbatim: Replace nothing: every byte of the header as it is.

    Raises:
        UsageError: ``shrink`` and ``verbatim`` together, or the file exists.
        NotFoundError, ModelError: The model cannot be read.
        ArrieroError: The file cannot be written.
    """
    if shrink and verbatim:
        raise UsageError("--shrink and --verbatim exclude each other")
    path = Path(path)
    source = open_model(model, environ=environ)
    try:
        header = read_source(source)
        whole = skeleton.neutral(header)
        if verbatim:
            paths = skeleton.part_paths(path, len(header.parts))
            skeleton.copy_header(header, source, paths)
            return _record(header, paths, kept=tuple(header.metadata))
    finally:
        source.close()
    small = shrunk(whole.header) if shrink else whole.header
    paths = skeleton.write_header(small, path)
    return _record(
        header,
        paths,
        kept=whole.kept,
        replaced=whole.replaced,
        dropped=whole.dropped,
        shrunk=_scales(whole.header, small),
    )


def _record(header: Header, paths: list[Path], **said: Any) -> SkeletonRecord:
    same: tuple[str, ...] = _ALL_MEMORY
    if shrunk := said.get("shrunk"):
        by_layer = any(scale.what == "layers" for scale in shrunk)
        same = ("kv of each layer", "rs of each layer") if by_layer else ("kv", "rs")
    return SkeletonRecord(
        path=str(paths[0]),
        arch=str(header.metadata["general.architecture"]),
        weights="zeros",
        file_bytes=sum(path.stat().st_size for path in paths),
        disk_bytes=_disk(paths),
        paths=tuple(map(str, paths)),
        source=header.parts[0].name,
        same_memory=same,
        **said,
    )


def _key(header: Header, name: str) -> str:
    return f"{header.metadata['general.architecture']}.{name}"


# --- smaller ------------------------------------------------------------------------------------


def shrunk(header: Header) -> Header:
    """As few layers, experts and tokens as keep every kind of layer."""
    small = _fewer_layers(header)
    if (experts := skeleton.fewer_experts(small)) is not None:
        small = skeleton.with_experts(small, experts)
    if _tokens(small) > skeleton.SMALL_VOCABULARY:
        small = skeleton.with_vocabulary(small, skeleton.SMALL_VOCABULARY)
    return small


def _fewer_layers(header: Header) -> Header:
    """The shortest run of layers from the start, at least two, in which every kind occurs.

    Kinds differ in their tensors or in what they keep in memory. Where what is kept cannot be told,
    or would not be the same, all layers stay.
    """
    tensors = skeleton.layer_kinds(header)
    try:
        h = read_hparams(header)
    except UnknownArchitectureError:
        return header
    if tensors is None:
        return header
    kinds = [(tensors[il], _kept_by(h, il)) for il in range(h.n_layer)]
    layers = min(2, h.n_layer)
    while len(set(kinds[:layers])) < len(set(kinds)):
        layers += 1
    if layers == h.n_layer:
        return header
    small = skeleton.with_layers(header, layers)
    after = read_hparams(small)
    stay = [*range(layers), *range(h.n_layer, h.n_layer_all)]
    same = _of_all_layers(h) == _of_all_layers(after) and [_kept_by(h, il) for il in stay] == [
        _kept_by(after, il) for il in range(after.n_layer_all)
    ]
    return small if same else header


def _kept_by(h: Hparams, il: int) -> tuple[object, ...]:
    """What decides the memory of one layer's caches."""
    listed = (h.is_ple, h.is_indexer_full, h.compress_ratios)
    return (
        *(h.is_swa[il], h.is_recurrent[il], h.k_gqa(il), h.v_gqa(il), h.n_head[il]),
        *(entries[il] for entries in listed if il < len(entries)),
        *(h.n_layer_kv is None or il < h.n_layer_kv, il < h.n_layer_dense_lead),
    )


def _of_all_layers(h: Hparams) -> tuple[object, ...]:
    """What decides the memory of every layer's caches."""
    sizes = (h.n_embd, h.head_k, h.head_v, h.head_k_swa, h.head_v_swa, h.n_swa, h.is_mla)
    state = (h.n_embd_r, h.n_embd_s, h.ple_state, h.indexer_head, h.kpool)
    return (h.memory, h.n_layer_nextn, h.nextn_cached, *sizes, *state)


def _scales(header: Header, small: Header) -> tuple[SkeletonScale, ...]:
    """What there is less of. NextN layers are in neither count: none is left out."""

    def number(held: Header, name: str) -> int:
        value = held.metadata.get(_key(header, name), 0)
        return value if isinstance(value, int) else 0

    def layers(held: Header) -> int:
        return number(held, "block_count") - number(held, "nextn_predict_layers")

    def weights(held: Header) -> int:
        return sum(tensor.bytes for tensor in held.tensors)

    found = (
        SkeletonScale(what="layers", original=layers(header), written=layers(small)),
        SkeletonScale(
            what="experts",
            original=number(header, "expert_count"),
            written=number(small, "expert_count"),
        ),
        SkeletonScale(what="vocabulary", original=_tokens(header), written=_tokens(small)),
        SkeletonScale(what="weights", original=weights(header), written=weights(small)),
    )
    return tuple(scale for scale in found if scale.original != scale.written)


def _tokens(header: Header) -> int:
    held = header.metadata.get("tokenizer.ggml.tokens")
    return held.count if isinstance(held, LazyArray) else 0


# --- for people ---------------------------------------------------------------------------------


def _disk(paths: list[Path]) -> int | None:
    blocks = [getattr(path.stat(), "st_blocks", None) for path in paths]
    return None if None in blocks else 512 * sum(b for b in blocks if b is not None)
