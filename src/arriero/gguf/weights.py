"""Bytes of random tensors: fast, deterministic, never not-a-number.

One pool of random blocks per type and magnitude is reused for every tensor, each time from another
position. Magnitudes follow the usual 1/sqrt(inputs), and layers add little to the residual stream,
so that any depth stays in range.

Answers are restricted to printable text through one column: every token's embedding has the same
large first element, which survives the layers, and the output rows of printable tokens have a
positive weight there, those of all others a negative one and nothing else. With tied embeddings
printable rows have twice the first element of the others.
"""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from arriero.gguf.architectures import Init, Tensor
from arriero.gguf.format import TYPES_BY_NAME, TensorType
from arriero.gguf.shape import Shape
from arriero.gguf.vocabulary import PRINTABLE

_BLOCK: Final = 32
_POOL_BLOCKS: Final = 8191  # a prime, so that rows of any usual length do not repeat in step
_CHUNK: Final = 1 << 20
_BIAS: Final = 8.0
_CONSTANTS: Final = {Init.ONE: 1.0, Init.HALF: 0.5, Init.ZERO: 0.0, Init.DECAY: -1.0}
_F32: Final = TYPES_BY_NAME["f32"]


_FALLBACKS: Final = {"q4_K": "q5_0", "q6_K": "q8_0"}
"""The types that llama-quantize uses if a row is not a multiple of a type's 256 elements."""


def stored_type(tensor: Tensor, shape: Shape) -> TensorType:
    """The type in which a tensor is stored: f16 if a row is not a multiple of the type's block."""
    if not tensor.matrix:
        return _F32
    match shape.tensor_type:
        case "q4_K_M":
            name = "q6_K" if _takes_more_bits(tensor, shape) else "q4_K"
        case "mxfp4":
            name = "mxfp4" if "_exps." in tensor.name else "q8_0"
        case name:
            pass
    for wanted in (name, _FALLBACKS.get(name, name)):
        if tensor.dims[0] % TYPES_BY_NAME[wanted].block == 0:
            return TYPES_BY_NAME[wanted]
    return TYPES_BY_NAME["f16"]


def _takes_more_bits(tensor: Tensor, shape: Shape) -> bool:
    """Whether q4_K_M stores a matrix as q6_K, as llama-quantize's ``llama_tensor_get_type`` does.

    These are the output matrix, and in the first and last eighth of the layers and every third
    between them the matrices that make values and those that leave the feed-forward.
    """
    if tensor.init is Init.OUTPUT or (tensor.init is Init.EMBEDDING and shape.tied):
        return True
    prefix, _, name = tensor.name.removeprefix("blk.").partition(".")
    if not name.startswith(("attn_v.", "attn_qkv.", "ffn_down")):
        return False
    layer, layers = int(prefix), shape.layers + shape.mtp
    eighth = layers // 8
    return layer < eighth or layer >= 7 * layers // 8 or (layer - eighth) % 3 == 2


def stored_bytes(tensor: Tensor, shape: Shape) -> int:
    """Bytes of a tensor in the file, without padding."""
    return stored_type(tensor, shape).row(tensor.dims[0]) * math.prod(tensor.dims[1:])


def fill(tensor: Tensor, shape: Shape, *, seed: int, index: int) -> Iterator[bytes]:
    """The tensor's bytes in chunks of at most about a MiB."""
    kind = stored_type(tensor, shape)
    if tensor.init in _CONSTANTS:
        value = struct.pack("<f", _CONSTANTS[tensor.init])
        yield from _repeat(value, 0, stored_bytes(tensor, shape))
        return
    exponent = _exponent(tensor, shape)
    pool = _pool(kind.name, exponent, seed)
    start = index * 977 % _POOL_BLOCKS * (len(pool) // _POOL_BLOCKS)
    if tensor.init in (Init.EMBEDDING, Init.OUTPUT):
        yield from _rows(tensor, shape, kind, pool, start)
    else:
        yield from _repeat(pool, start, stored_bytes(tensor, shape))


def _exponent(tensor: Tensor, shape: Shape) -> int:
    """Magnitudes lie between 2**exponent and 2**(exponent + 1)."""
    inputs = tensor.dims[0]
    match tensor.init:
        case Init.EMBEDDING:
            size = 0.25 if shape.tied else 0.5
        case Init.CONVOLUTION:
            size = 0.25
        case Init.WRITE:
            size = 0.25 / math.sqrt(inputs * shape.layers)
        case _:
            size = 1 / math.sqrt(inputs)
    return max(math.floor(math.log2(size)), -14)  # the smallest normal f16


def _repeat(pattern: bytes, start: int, length: int) -> Iterator[bytes]:
    pattern = pattern[start:] + pattern[:start]
    chunk = pattern * max(1, min(_CHUNK, length) // len(pattern))
    for _ in range(length // len(chunk)):
        yield chunk
    yield chunk[: length % len(chunk)]


def _rows(
    tensor: Tensor, shape: Shape, kind: TensorType, pool: bytes, start: int
) -> Iterator[bytes]:
    """Rows of the embedding or the output matrix: the bias column's block, then random ones."""
    rest = kind.row(tensor.dims[0] - _BLOCK)
    wrapped = pool + pool[:rest] if rest <= len(pool) else pool * (rest // len(pool) + 2)
    unit = len(pool) // _POOL_BLOCKS
    if tensor.init is Init.OUTPUT:
        first, first_other = _lone(kind, 1.0), _lone(kind, -1.0)
    else:
        first = _lone(kind, 2 * _BIAS if shape.tied else _BIAS)
        first_other = _lone(kind, _BIAS)
    zeros = _lone(kind, 0.0)[: kind.row(_BLOCK)] * ((tensor.dims[0] - _BLOCK) // _BLOCK)
    # an input token that is not printable still gets an embedding of its own, unless that would
    # also be its output row
    others_random = tensor.init is Init.EMBEDDING and not shape.tied
    batch: list[bytes] = []
    held = 0
    for token in range(tensor.dims[1]):
        printable = token < len(PRINTABLE)
        offset = (start + token * unit * 61) % len(pool)
        body = wrapped[offset : offset + rest] if printable or others_random else zeros
        batch += (first if printable else first_other, body)
        held += len(body)
        if held >= _CHUNK:
            yield b"".join(batch)
            batch, held = [], 0
    yield b"".join(batch)


def _lone(kind: TensorType, value: float) -> bytes:
    """32 elements: ``value``, then zeros."""
    match kind.name:
        case "f32":
            return struct.pack("<f", value) + bytes(124)
        case "f16":
            return struct.pack("<e", value) + bytes(62)
        case "bf16":
            return struct.pack("<f", value)[2:] + bytes(62)
        case "q8_0":
            return struct.pack("<e", value / 127) + b"\x7f" + bytes(31)
        case _:  # q4_0: elements are (nibble - 8) * scale, and element 0 is the first low nibble
            return struct.pack("<e", value / -8) + b"\x80" + b"\x88" * 15


@lru_cache(maxsize=16)
def _pool(type_name: str, exponent: int, seed: int) -> bytes:
    """Random blocks whose magnitudes lie around 2**exponent, with random signs."""
    source = random.Random(f"{type_name} {exponent} {seed}")
    count = _POOL_BLOCKS * _BLOCK

    def draw(keep: int, put: int) -> bytes:
        """Random bytes of which only the bits of ``keep`` vary and the rest is ``put``."""
        return source.randbytes(count).translate(bytes(b & keep | put for b in range(256)))

    match type_name:
        case "f32" | "bf16":
            biased = 127 + exponent
            low = [source.randbytes(count), source.randbytes(count)] if type_name == "f32" else []
            return _interleave([*low, draw(0x7F, (biased & 1) << 7), draw(0x80, biased >> 1)])
        case "f16":
            return _interleave([source.randbytes(count), draw(0x83, (15 + exponent) << 2)])
        case "q8_0":
            payload, scale = 32, struct.pack("<e", 2.0**exponent / 64)
        case _:
            payload, scale = 16, struct.pack("<e", 2.0**exponent / 4)
    values = source.randbytes(_POOL_BLOCKS * payload)
    return b"".join(scale + values[i * payload : (i + 1) * payload] for i in range(_POOL_BLOCKS))


def _interleave(planes: list[bytes]) -> bytes:
    out = bytearray(len(planes) * len(planes[0]))
    for i, plane in enumerate(planes):
        out[i :: len(planes)] = plane
    return bytes(out)
