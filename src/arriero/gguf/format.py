"""The GGUF container's constants: value types, tensor types and their sizes.

Sources: ``gguf.h``, ``ggml.h`` and ``ggml-common.h`` of llama.cpp (build 10435).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

MAGIC: Final = b"GGUF"
DEFAULT_ALIGNMENT: Final = 32
MAX_DIMS: Final = 4


class ValueType(IntEnum):
    """The type of one metadata value."""

    UINT8 = 0
    INT8 = 1
    UINT16 = 2
    INT16 = 3
    UINT32 = 4
    INT32 = 5
    FLOAT32 = 6
    BOOL = 7
    STRING = 8
    ARRAY = 9
    UINT64 = 10
    INT64 = 11
    FLOAT64 = 12


SCALARS: Final = {
    ValueType.UINT8: "B",
    ValueType.INT8: "b",
    ValueType.UINT16: "H",
    ValueType.INT16: "h",
    ValueType.UINT32: "I",
    ValueType.INT32: "i",
    ValueType.FLOAT32: "f",
    ValueType.BOOL: "?",
    ValueType.UINT64: "Q",
    ValueType.INT64: "q",
    ValueType.FLOAT64: "d",
}
"""``struct`` codes of the fixed-size value types."""


@dataclass(frozen=True)
class TensorType:
    """How ``block`` consecutive elements of a row are stored in ``size`` bytes."""

    id: int
    name: str
    block: int
    size: int

    def row(self, elements: int) -> int:
        """Bytes of a row of so many elements, which must be a multiple of ``block``."""
        return elements // self.block * self.size


TENSOR_TYPES: Final = {
    entry.id: entry
    for entry in (
        TensorType(0, "f32", 1, 4),
        TensorType(1, "f16", 1, 2),
        TensorType(2, "q4_0", 32, 18),
        TensorType(3, "q4_1", 32, 20),
        TensorType(6, "q5_0", 32, 22),
        TensorType(7, "q5_1", 32, 24),
        TensorType(8, "q8_0", 32, 34),
        TensorType(9, "q8_1", 32, 36),
        TensorType(10, "q2_K", 256, 84),
        TensorType(11, "q3_K", 256, 110),
        TensorType(12, "q4_K", 256, 144),
        TensorType(13, "q5_K", 256, 176),
        TensorType(14, "q6_K", 256, 210),
        TensorType(15, "q8_K", 256, 292),
        TensorType(16, "iq2_xxs", 256, 66),
        TensorType(17, "iq2_xs", 256, 74),
        TensorType(18, "iq3_xxs", 256, 98),
        TensorType(19, "iq1_s", 256, 50),
        TensorType(20, "iq4_nl", 32, 18),
        TensorType(21, "iq3_s", 256, 110),
        TensorType(22, "iq2_s", 256, 82),
        TensorType(23, "iq4_xs", 256, 136),
        TensorType(24, "i8", 1, 1),
        TensorType(25, "i16", 1, 2),
        TensorType(26, "i32", 1, 4),
        TensorType(27, "i64", 1, 8),
        TensorType(28, "f64", 1, 8),
        TensorType(29, "iq1_m", 256, 56),
        TensorType(30, "bf16", 1, 2),
        TensorType(34, "tq1_0", 256, 54),
        TensorType(35, "tq2_0", 256, 66),
        TensorType(39, "mxfp4", 32, 17),
        TensorType(40, "nvfp4", 64, 36),
        TensorType(41, "q1_0", 128, 18),
        TensorType(42, "q2_0", 64, 18),
    )
}

TYPES_BY_NAME: Final = {entry.name: entry for entry in TENSOR_TYPES.values()}
