"""GGUF bytes put together by hand, so that a test can get any of them wrong."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

STRING, ARRAY, INT32, UINT32, FLOAT32, BOOL = 8, 9, 5, 4, 6, 7


@dataclass
class Gguf:
    """A file in the making; ``order`` is ``<`` or ``>``."""

    order: str = "<"
    version: int = 3
    keys: list[bytes] = field(default_factory=list)
    tensors: list[bytes] = field(default_factory=list)
    tensor_count: int | None = None
    key_count: int | None = None
    alignment: int = 32

    def pack(self, codes: str, *values: float) -> bytes:
        return struct.pack(self.order + codes, *values)

    def text(self, value: str | bytes) -> bytes:
        data = value if isinstance(value, bytes) else value.encode()
        return self.pack("Q", len(data)) + data

    def key(self, name: str, kind: int, value: bytes) -> Gguf:
        self.keys.append(self.text(name) + self.pack("I", kind) + value)
        return self

    def string(self, name: str, value: str | bytes) -> Gguf:
        return self.key(name, STRING, self.text(value))

    def number(self, name: str, value: int) -> Gguf:
        return self.key(name, UINT32, self.pack("I", value))

    def strings(self, name: str, values: Sequence[str | bytes]) -> Gguf:
        body = b"".join(map(self.text, values))
        return self.key(name, ARRAY, self.pack("IQ", STRING, len(values)) + body)

    def numbers(self, name: str, values: Sequence[int]) -> Gguf:
        body = self.pack(f"{len(values)}i", *values)
        return self.key(name, ARRAY, self.pack("IQ", INT32, len(values)) + body)

    def tensor(self, name: str, dims: Sequence[int], type_id: int = 0, offset: int = 0) -> Gguf:
        shape = self.pack(f"I{len(dims)}Q", len(dims), *dims)
        self.tensors.append(self.text(name) + shape + self.pack("IQ", type_id, offset))
        return self

    def build(self, data: int = 0) -> bytes:
        """The header and so many bytes of tensor data."""
        tensors = len(self.tensors) if self.tensor_count is None else self.tensor_count
        keys = len(self.keys) if self.key_count is None else self.key_count
        head = b"GGUF" + self.pack("IQQ", self.version, tensors, keys)
        head += b"".join(self.keys + self.tensors)
        return head + bytes(-len(head) % self.alignment + data)
