"""Read the header of one file, with every count, length and offset checked."""

from __future__ import annotations

import math
import re
import struct
import sys
from dataclasses import dataclass
from itertools import repeat
from operator import length_hint
from typing import Final

from arriero.base import limits
from arriero.base.errors import ModelError
from arriero.base.sizes import human
from arriero.gguf.format import (
    DEFAULT_ALIGNMENT,
    MAGIC,
    MAX_DIMS,
    SCALARS,
    TENSOR_TYPES,
    ValueType,
)
from arriero.gguf.header import (
    Header,
    LazyArray,
    Part,
    Scalar,
    TensorInfo,
    Value,
)
from arriero.gguf.likeness import START, looks_like
from arriero.gguf.source import Source

_CHUNK: Final = 1 << 20
_MAX_SHOWN: Final = 80
"""Characters of a name in a message."""
_LAYER: Final = re.compile(r"blk\.(\d+)")


_Row = tuple[int, str, int, tuple[int, ...], int]
"""Position of a tensor's entry; its name, type, dimensions and offset as in the file."""


@dataclass
class Left:
    """How much the header of a model may still contain, counted over all its parts."""

    keys: int = limits.HEADER_KEYS
    tensors: int = limits.HEADER_TENSORS
    text: int = limits.HEADER_TEXT
    strings: int = limits.HEADER_STRINGS
    string_bytes: int = limits.HEADER_STRING_BYTES
    numbers: int = 16 * limits.HEADER_NUMBERS


class FileReader:
    """A cursor over one file, with a buffer of one chunk."""

    def __init__(self, source: Source, left: Left, chunk: int = _CHUNK) -> None:
        self._source = source
        self._size = source.size
        self._base = 0
        self._buffer = source.read(0, START, chunk)
        self._at = 0
        self._what, self._where = "the file header", 0
        self._order = "<"
        self._alignment = DEFAULT_ALIGNMENT
        self._left = left

    def header(self) -> Header:
        self._check_magic()
        version = self._version()
        tensor_count, key_count = self._number("Q"), self._number("Q")
        self._limit("number of tensors", tensor_count, self._left.tensors)
        self._limit("number of keys", key_count, self._left.keys)
        self._left.tensors -= tensor_count
        self._left.keys -= key_count
        metadata = self._metadata(key_count)
        rows = self._tensor_rows(tensor_count)
        data_offset = -(-self._at // self._alignment) * self._alignment
        return Header(
            version=version,
            big_endian=self._order == ">",
            metadata=metadata,
            tensors=self._placed(rows, data_offset),
            data_offset=data_offset,
            alignment=self._alignment,
            file_bytes=self._size,
            parts=(Part(self._source.name, self._size, data_offset),),
        )

    # what the parts of a file look like

    def _check_magic(self) -> None:
        if not self._buffer.startswith(MAGIC):
            looks, hint = looks_like(self._buffer)
            raise ModelError(f"{self._source.name} is not a GGUF file: {looks}", hint=hint)
        self._at = len(MAGIC)

    def _version(self) -> int:
        version = self._number("I")
        if version & 0xFFFF == 0 and version:
            self._order = ">"
            version = int.from_bytes(version.to_bytes(4, "little"), "big")
        if version not in (2, 3):
            hint = "convert the model again" if version < 2 else "use a newer Arriero"
            raise ModelError(
                f"{self._source.name}: GGUF version {version} (byte 4) is not 2 or 3", hint=hint
            )
        return version

    def _metadata(self, count: int) -> dict[str, Value]:
        metadata: dict[str, Value] = {}
        for index in range(count):
            self._what, self._where = f"key {index + 1} of {count}", self._at
            key = self._string(limits.HEADER_NAME)
            self._what = f"key {_short(key)}"
            if key in metadata:
                raise self._wrong("appears twice")
            metadata[key] = self._value()
            if key == "general.alignment":
                self._alignment = self._checked_alignment(metadata[key])
        return metadata

    def _value(self) -> Value:
        kind = self._value_type()
        if kind is not ValueType.ARRAY:
            return self._string() if kind is ValueType.STRING else self._scalar(kind)
        kind, count = self._value_type(), self._number("Q")
        start = self._at
        if kind is ValueType.ARRAY:
            raise self._wrong("is an array of arrays")
        if kind is ValueType.STRING:
            self._skip_strings(count)
            return LazyArray(kind, count, start)
        code = SCALARS[kind]
        length = count * struct.calcsize(f"<{code}")
        self._need(length)
        if count > min(limits.HEADER_NUMBERS, self._left.numbers):
            self._at += length
            return LazyArray(kind, count, start)
        self._left.numbers -= count
        return struct.unpack(f"{self._order}{count}{code}", self._take(length))

    def _value_type(self) -> ValueType:
        number = self._number("I")
        try:
            return ValueType(number)
        except ValueError:
            raise self._wrong(f"has the unknown type {number}") from None

    def _checked_alignment(self, value: Value) -> int:
        if (
            isinstance(value, bool)
            or not isinstance(value, int)
            or not 0 < value <= limits.ALIGNMENT
            or value & (value - 1)
        ):
            said = value if isinstance(value, int) else "not a number"
            raise self._wrong(f"must be a power of two up to {limits.ALIGNMENT}; it is {said}")
        return value

    def _tensor_rows(self, count: int) -> list[_Row]:
        rows = []
        names: set[str] = set()
        for index in range(count):
            where = self._where = self._at
            self._what = f"tensor {index + 1} of {count}"
            name = self._string(limits.HEADER_NAME)
            self._what = f"tensor {_short(name)}"
            self._check_tensor_name(name)
            if name in names:
                raise self._wrong("appears twice")
            names.add(name)
            dims = self._number("I")
            self._limit("number of dimensions", dims, MAX_DIMS)
            shape: tuple[int, ...] = self._numbers(f"{dims}Q")
            type_id, offset = self._numbers("IQ")
            rows.append((where, name, type_id, shape, offset))
        return rows

    def _check_tensor_name(self, name: str) -> None:
        layer = _LAYER.match(name)
        if layer and (len(layer[1]) > 5 or int(layer[1]) >= limits.LAYERS):
            raise self._wrong("has a layer number that no model has")
        if len(name.encode()) > limits.TENSOR_NAME:
            raise self._wrong(f"has a name longer than {limits.TENSOR_NAME} bytes")

    def _placed(self, rows: list[_Row], data_offset: int) -> tuple[TensorInfo, ...]:
        """The tensors with their size and place, all inside the file."""
        starts = sorted({offset for *_, offset in rows})
        room = dict(zip(starts, [*starts[1:], self._size - data_offset], strict=False))
        tensors = []
        for where, name, type_id, shape, offset in rows:
            self._what, self._where = f"tensor {_short(name)}", where
            elements = math.prod(shape)
            if elements > limits.ELEMENTS:
                raise self._wrong(f"has the absurd shape {list(shape)}")
            if offset % self._alignment:
                raise self._wrong(f"starts at {offset}, not at a multiple of {self._alignment}")
            kind = TENSOR_TYPES.get(type_id)
            if kind is None:
                size = max(room[offset] - offset, 0)
            else:
                if shape and shape[0] % kind.block:
                    raise self._wrong(f"has rows of {shape[0]}, not a multiple of {kind.block}")
                size = elements // kind.block * kind.size
            end = data_offset + offset + size
            if end > self._size:
                raise ModelError(
                    f"{self._source.name}: file is truncated: {self._what} ends at byte {end}, "
                    f"but the file has {self._size}",
                    hint="download it again",
                    id="model-truncated",
                )
            type_name = kind.name if kind else f"type {type_id}"
            tensors.append(TensorInfo(name, type_name, shape, data_offset + offset, size))
        return tuple(tensors)

    # the bytes

    def _wrong(self, text: str) -> ModelError:
        return ModelError(f"{self._source.name}: {self._what} {text} (byte {self._where})")

    def _limit(self, what: str, value: int, ceiling: int) -> None:
        if value > ceiling:
            raise self._wrong(f"says {what} {value}; at most {ceiling} are read")

    def _need(self, length: int) -> None:
        if self._at + length > self._size:
            raise ModelError(
                f"{self._source.name}: file is truncated: {self._what} at byte {self._at} needs "
                f"{length} bytes, but the file has {self._size}",
                hint="download it again",
                id="model-truncated",
            )

    def _take(self, length: int) -> bytes:
        self._need(length)
        self._fill(length)
        start = self._at - self._base
        self._at += length
        return self._buffer[start : start + length]

    def _fill(self, length: int) -> None:
        """Read so many bytes from here on into the buffer; the file is known to have them."""
        if self._at - self._base + length > len(self._buffer):
            self._base = self._at
            self._buffer = self._source.read(self._at, length, _CHUNK)
            if len(self._buffer) < length:
                raise self._wrong("cannot be read: the file has shrunk")

    def _numbers(self, codes: str) -> tuple[int, ...]:
        layout = struct.Struct(self._order + codes)
        return layout.unpack(self._take(layout.size))

    def _number(self, code: str) -> int:
        return self._numbers(code)[0]

    def _scalar(self, kind: ValueType) -> Scalar:
        layout = struct.Struct(self._order + SCALARS[kind])
        value: Scalar = layout.unpack(self._take(layout.size))[0]
        return value

    def _string(self, limit: int = limits.HEADER_TEXT) -> str:
        length = self._number("Q")
        self._need(length)
        self._limit("length", length, limit)
        if length <= self._left.text:
            text = self._take(length).decode(errors="replace")
            # one character beyond the first planes makes every other take four bytes
            self._left.text -= sys.getsizeof(text)
            if self._left.text >= 0:
                return text
        raise self._wrong(f"makes the header's text longer than {human(limits.HEADER_TEXT)}")

    def _skip_strings(self, count: int) -> None:
        """Skip strings with one unpack for each.

        A length that leads beyond the buffer makes the next unpack fail, and then the buffer moves
        on; so no step needs a check of its own.
        """
        self._need(count * 8)
        self._left.strings -= count
        if self._left.strings < 0:
            raise self._wrong(f"makes the strings in arrays more than {limits.HEADER_STRINGS}")
        unpack = struct.Struct(f"{self._order}Q").unpack_from
        start, left = self._at, count
        while left:
            self._need(8)
            self._fill(8)
            buffer, at = self._buffer, self._at - self._base
            steps = repeat(None, left)
            try:
                for _ in steps:
                    at += unpack(buffer, at)[0] + 8
                left = 0
            except (struct.error, OverflowError):
                left = length_hint(steps) + 1
            self._what = f"{self._what.partition(',')[0]}, string {count - left} of {count}"
            self._need(self._base + at - self._at)
            self._at = self._base + at
            self._limit("length", self._at - start, self._left.string_bytes)
        self._left.string_bytes -= self._at - start


def _short(name: str) -> str:
    """A name, shortened for a message."""
    return repr(name if len(name) <= _MAX_SHOWN else name[:_MAX_SHOWN] + "…")
