"""Read the header of a GGUF file: metadata and tensor table, never tensor data.

The file may be hostile. Every count, length, offset and type is checked against the size of the
file and a limit, and memory stays below 64 MiB whatever the file says. Long arrays (tokens, merges,
scores) are skipped, not read: only their position is kept.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from arriero.base import limits
from arriero.base.errors import ModelError, NotFoundError
from arriero.base.paths import StrPath
from arriero.gguf.file_reader import FileReader, Left
from arriero.gguf.header import Header, TensorInfo
from arriero.gguf.source import LocalSource, Source

_LATER_CHUNK: Final = 1 << 14
"""For the start of a later part of a set, whose header has no vocabulary."""
_PART_NAME: Final = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf\Z", re.DOTALL)


def read_header(path: StrPath) -> Header:
    """Read the header of a local model; of a split set, all its parts' headers.

    Raises:
        NotFoundError: The file, or a part of the set, does not exist.
        ModelError: It is not a GGUF file, or it is damaged, truncated or absurd; the message names
            the key or tensor and the byte.
    """
    source = LocalSource(Path(path))
    try:
        return read_source(source)
    finally:
        source.close()


def read_source(source: Source) -> Header:
    """Like :func:`read_header`, from any :class:`~arriero.gguf.source.Source`."""
    left = Left()
    first = FileReader(source, left).header()
    count = _integer(first, "split.count", 1)
    if count <= 1:
        return first
    return _whole_set(source, first, count, left)


def first_part(name: str) -> str:
    """The name of the first part of the set to which a file of this name belongs, else the name."""
    match = _PART_NAME.match(name)
    return f"{match[1]}-00001-of-{match[3]}.gguf" if match else name


def _whole_set(source: Source, first: Header, count: int, left: Left) -> Header:
    file_name = source.name.replace("\\", "/").rpartition("/")[2]
    match = _PART_NAME.match(file_name)
    if count > limits.HEADER_PARTS:
        raise ModelError(f"{source.name}: split.count is {count}, more than {limits.HEADER_PARTS}")
    if match is None or int(match[3]) != count:
        raise ModelError(
            f"{source.name} is one of {count} parts, but its name does not say so",
            hint=f"name the parts as llama.cpp expects: NAME-00001-of-{count:05d}.gguf",
        )
    names = [f"{match[1]}-{i + 1:05d}-of-{count:05d}.gguf" for i in range(count)]
    if _integer(first, "split.no", 0) != 0 or int(match[2]) != 1:
        raise ModelError(f"{file_name} is not the first part", hint=f"give {names[0]}")
    headers = [first]
    tensors = list(first.tensors)
    for number, name in enumerate(names[1:], start=1):
        part = _read_part(source, name, left)
        for key, expected in (("split.no", number), ("split.count", count)):
            value = _integer(part, key, -1)
            if value != expected:
                raise ModelError(
                    f"{name} does not belong to this set: {key} is {value}, not {expected}"
                )
        tensors += (
            TensorInfo(t.name, t.type, t.shape, t.offset, t.bytes, number) for t in part.tensors
        )
        headers.append(part)
    total = _integer(first, "split.tensors.count", len(tensors))
    if total != len(tensors):
        raise ModelError(f"{file_name}: the set has {len(tensors)} tensors instead of {total}")
    if len({t.name for t in tensors}) != len(tensors):
        raise ModelError(f"{file_name}: two parts of the set contain the same tensor")
    return Header(
        version=first.version,
        big_endian=first.big_endian,
        metadata=first.metadata,
        tensors=tuple(tensors),
        data_offset=first.data_offset,
        alignment=first.alignment,
        file_bytes=sum(h.file_bytes for h in headers),
        parts=tuple(h.parts[0] for h in headers),
    )


def _read_part(first: Source, name: str, left: Left) -> Header:
    try:
        source = first.sibling(name)
    except NotFoundError:
        raise NotFoundError(f"{first.name}: the set lacks {name}", id="model-part") from None
    try:
        return FileReader(source, left, _LATER_CHUNK).header()
    finally:
        source.close()


def _integer(header: Header, key: str, default: int) -> int:
    value = header.metadata.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ModelError(f"{header.parts[0].name}: {key} is not an integer")
    return value
