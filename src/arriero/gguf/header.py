"""What the header of a model holds: metadata, the tensor table, the files it is in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from arriero.gguf.format import ValueType


@dataclass(frozen=True, slots=True)
class LazyArray:
    """An array that was skipped: ``count`` elements of ``type`` from byte ``offset``."""

    type: ValueType
    count: int
    offset: int


Scalar = str | bool | int | float
Value = Scalar | tuple[Scalar, ...] | LazyArray


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor: ``shape`` fastest dimension first, ``offset`` from the start of its part's file.

    ``bytes`` does not include padding. For an unknown type (``type`` is then ``"type N"``) it is
    the distance to the next tensor.
    """

    name: str
    type: str
    shape: tuple[int, ...]
    offset: int
    bytes: int
    part: int = 0


@dataclass(frozen=True)
class Part:
    """One file of a model; ``data_offset`` is the end of its header, padding included."""

    name: str
    bytes: int
    data_offset: int


@dataclass(frozen=True, kw_only=True)
class Header:
    """The header of a model, all parts of a split set together.

    ``metadata``, ``version``, ``alignment`` and ``data_offset`` are the first part's;
    ``file_bytes`` is the sum of all parts.
    """

    version: int
    big_endian: bool
    metadata: Mapping[str, Value]
    tensors: tuple[TensorInfo, ...]
    data_offset: int
    alignment: int
    file_bytes: int
    parts: tuple[Part, ...]
