"""Write a multimodal projector (``--mmproj``) that llama.cpp loads: tiny or wide, with or without
weights.

Two kinds, one for each way that a server treats images. ``gemma3`` scales every image to one size
and decodes it without a causal mask; ``pixtral`` takes as many tokens as an image is large.

Sources: ``clip_model_loader`` in llama.cpp's ``tools/mtmd/clip.cpp`` (builds 10068 and 10435), and
what the engine says when a key or tensor is missing.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from arriero.base.errors import UsageError

if TYPE_CHECKING:
    from arriero.gguf.architectures import Value
    from arriero.gguf.format import TensorType

_ALIGNMENT: Final = 32
"""``general.alignment`` by default."""
_MAX_DIMENSION: Final = 1 << 20
_POOL: Final = 8191  # a prime, so that rows of any usual length do not repeat in step
_CHUNK: Final = 1 << 20
_FILE_TYPES: Final = {"f32": 0, "f16": 1}


@dataclass(frozen=True, kw_only=True)
class Projector:
    """One vision encoder and its projection, by the names of llama.cpp's own keys.

    ``projection`` must be the ``n_embd`` of the text model, or the engine refuses the pair. An
    image of ``gemma3`` has sides of ``image_size`` pixels and gives ``(image_size / patch_size /
    merge) ** 2`` tokens.

    Raises:
        UsageError: A dimension is out of range, or the dimensions do not match each other.
    """

    kind: Literal["gemma3", "pixtral"] = "gemma3"
    name: str = "arriero-mmproj"
    tensor_type: Literal["f32", "f16"] = "f16"
    projection: int = 128
    layers: int = 2
    embedding: int = 64
    heads: int = 2
    feed_forward: int = 128
    image_size: int = 64
    patch_size: int = 8
    merge: int = 2
    """``gemma3``: patches of a side that are pooled into one token."""

    @property
    def tokens(self) -> int:
        """Tokens of one image of ``image_size``."""
        side = self.image_size // self.patch_size
        return (side // self.merge) ** 2 if self.kind == "gemma3" else side * (side + 1) - 1

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, int) and not 1 <= value <= _MAX_DIMENSION:
                raise UsageError(f"{field.name} must be 1 to {_MAX_DIMENSION}, not {value}")
        step = self.patch_size * self.merge
        for wrong, why in (
            (self.image_size % step, "image_size is not a multiple of patch_size * merge"),
            (self.embedding % self.heads, "embedding is not a multiple of heads"),
            (
                self.kind == "pixtral" and self.embedding // self.heads % 4,
                "the width of a head is not a multiple of 4",
            ),
        ):
            if wrong:
                raise UsageError(f"a projector cannot have this shape: {why}")


def write_projector(
    path: Path,
    projector: Projector,
    *,
    weights: Literal["random", "zeros"] = "random",
    seed: int = 0,
) -> Path:
    """Write a GGUF file of this projector and return its path.

    The same projector, weights and seed give the same bytes. The file appears whole or not at all.

    Args:
        weights: ``random`` fills the file; ``zeros`` leaves a hole that takes no disk.

    Raises:
        NotFoundError: The directory does not exist.
        UsageError: The file exists already.
        ArrieroError: The file cannot be written, e.g. because the disk is full.
    """
    # Code that only describes a projector does not need the writer.
    from arriero.gguf.writer import appearing, encode, header_bytes

    tensors = [(name, dims, _type(projector, name, dims)) for name, dims in _tensors(projector)]
    sizes = [kind.row(dims[0]) * math.prod(dims[1:]) for _, dims, kind in tensors]
    offsets = [0]
    for size in sizes:
        offsets.append(_pad(offsets[-1] + size))
    table = (
        (name, dims, kind.id, offset)
        for (name, dims, kind), offset in zip(tensors, offsets, strict=False)
    )
    keys = [(key, encode(value)) for key, value in _metadata(projector).items()]
    with appearing(path, offsets[-1] if weights == "random" else 0) as file:
        file.writelines(header_bytes(keys, table))
        start = _pad(file.tell())
        for index, (name, dims, kind) in enumerate(tensors):
            if weights == "random":
                file.seek(start + offsets[index])
                file.writelines(_fill(name, dims, kind, sizes[index], seed + index))
        file.truncate(start + offsets[-1])
    return path


def _pad(offset: int) -> int:
    return -(-offset // _ALIGNMENT) * _ALIGNMENT


def _metadata(p: Projector) -> dict[str, Value | list[float]]:
    keys: dict[str, Value | list[float]] = {
        "general.architecture": "clip",
        "general.type": "mmproj",
        "general.name": p.name,
        "general.file_type": _FILE_TYPES[p.tensor_type],
        "clip.has_vision_encoder": True,
        "clip.projector_type": p.kind,
        "clip.vision.embedding_length": p.embedding,
        "clip.vision.feed_forward_length": p.feed_forward,
        "clip.vision.block_count": p.layers,
        "clip.vision.projection_dim": p.projection,
        "clip.vision.attention.head_count": p.heads,
        "clip.vision.attention.layer_norm_epsilon": 1e-6,
        "clip.vision.image_size": p.image_size,
        "clip.vision.patch_size": p.patch_size,
        "clip.vision.image_mean": [0.5, 0.5, 0.5],
        "clip.vision.image_std": [0.5, 0.5, 0.5],
    }
    if p.kind == "gemma3":
        return keys | {"clip.use_gelu": True, "clip.vision.projector.scale_factor": p.merge}
    return keys | {"clip.use_silu": True}


def _tensors(p: Projector) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and dimensions, fastest first, in file order."""
    n, wide = p.embedding, p.feed_forward
    norms = ("weight", "bias") if p.kind == "gemma3" else ("weight",)
    yield "v.patch_embd.weight", (p.patch_size, p.patch_size, 3, n)
    if p.kind == "gemma3":
        yield "v.patch_embd.bias", (n,)
        yield "v.position_embd.weight", (n, (p.image_size // p.patch_size) ** 2)
        yield from ((f"v.post_ln.{part}", (n,)) for part in norms)
        yield "mm.soft_emb_norm.weight", (n,)
        yield "mm.input_projection.weight", (p.projection, n)
    else:
        yield "v.pre_ln.weight", (n,)
        yield "mm.1.weight", (n, p.projection)
        yield "mm.2.weight", (p.projection, p.projection)
        yield "v.token_embd.img_break", (p.projection,)
    for layer in range(p.layers):
        for name in ("ln1", "ln2"):
            yield from ((f"v.blk.{layer}.{name}.{part}", (n,)) for part in norms)
        for name in ("attn_q", "attn_k", "attn_v", "attn_out"):
            yield f"v.blk.{layer}.{name}.weight", (n, n)
        for name in ("ffn_up", "ffn_gate") if p.kind == "pixtral" else ("ffn_up",):
            yield f"v.blk.{layer}.{name}.weight", (n, wide)
        yield f"v.blk.{layer}.ffn_down.weight", (wide, n)


def _type(p: Projector, name: str, dims: tuple[int, ...]) -> TensorType:
    """The projector's type for matrices; f32 for tensors that are used element by element."""
    from arriero.gguf.format import TYPES_BY_NAME

    plain = len(dims) == 1 or name.startswith("v.position_embd")
    return TYPES_BY_NAME["f32" if plain else p.tensor_type]


def _fill(
    name: str, dims: tuple[int, ...], kind: TensorType, size: int, seed: int
) -> Iterator[bytes]:
    """The tensor's bytes in chunks of at most about a MiB: norms are one, biases zero."""
    code = {"f32": "f", "f16": "e"}[kind.name]
    if len(dims) == 1:
        pattern = struct.pack(f"<{code}", float(name.endswith("weight")))
    else:
        import random  # late: describing a projector needs no numbers

        rng = random.Random(seed)
        values = (rng.uniform(-1, 1) / math.sqrt(dims[0]) for _ in range(_POOL))
        pattern = struct.pack(f"<{_POOL}{code}", *values)
    chunk = pattern * max(1, min(_CHUNK, size) // len(pattern))
    for _ in range(size // len(chunk)):
        yield chunk
    yield chunk[: size % len(chunk)]
