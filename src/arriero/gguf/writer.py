"""Write a model that llama.cpp loads: tiny or full-size, with random or no weights.

Random weights make a server that answers printable text. Zero weights take no disk (the file is
sparse), only address space and, while the engine reads them, page cache: a model of any size for
memory trials.
"""

from __future__ import annotations

import errno
import os
import shutil
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final, Literal

from arriero.base.errors import ArrieroError, NotFoundError, UsageError
from arriero.base.sizes import human
from arriero.gguf import architectures, vocabulary
from arriero.gguf.architectures import Tensor, Value
from arriero.gguf.format import DEFAULT_ALIGNMENT, MAGIC, SCALARS, ValueType
from arriero.gguf.reader import Header
from arriero.gguf.shape import Shape
from arriero.gguf.weights import fill, stored_bytes, stored_type

_FILE_TYPES: Final = {"f32": 0, "f16": 1, "q4_0": 2, "q8_0": 7, "bf16": 32}
"""``general.file_type``, which llama.cpp only prints."""
_VERSION: Final = 3


def write_model(
    path: Path, shape: Shape, *, weights: Literal["random", "zeros"] = "random", seed: int = 0
) -> Path:
    """Write a GGUF file of this shape and return its path.

    The same shape, weights and seed give the same bytes. Memory stays below about 10 MiB whatever
    the size of the model. The file appears whole or not at all.

    Args:
        weights: ``random`` fills the file; ``zeros`` leaves a hole that takes no disk.

    Raises:
        NotFoundError: The directory does not exist.
        UsageError: The file exists already.
        ArrieroError: The file cannot be written, e.g. because the disk is full.
    """
    tensors = list(architectures.tensors(shape))
    with _appearing(path, model_bytes(shape) if weights == "random" else 0) as file:
        file.write(b"".join(_metadata(shape, len(tensors))))
        file.write(b"".join(_tensor_table(tensors, shape)))
        offset = _pad(file.tell())
        for index, tensor in enumerate(tensors):
            if weights == "random":
                file.seek(offset)
                file.writelines(fill(tensor, shape, seed=seed, index=index))
            offset = _pad(offset + stored_bytes(tensor, shape))
        file.truncate(offset)
    return path


def write_skeleton(header: Header, directory: Path) -> Path:
    """Copy a local model without its weights: every header byte the same, then a hole.

    The engine takes the same memory for it and answers nonsense. It costs as much disk as the
    header. The parts of a split set keep their names; the path of the first is returned.

    Raises:
        NotFoundError, UsageError, ArrieroError: As :func:`write_model`.
    """
    paths = [directory / Path(part.name).name for part in header.parts]
    for part, path in zip(header.parts, paths, strict=True):
        # a model without tensors may end before the padding of its header
        left = min(part.data_offset, part.bytes)
        with Path(part.name).open("rb") as original, _appearing(path, 0) as file:
            while left and (chunk := original.read(min(left, 1 << 20))):
                file.write(chunk)
                left -= len(chunk)
            file.truncate(part.bytes)
    return paths[0]


def model_bytes(shape: Shape) -> int:
    """Bytes of all tensors with padding: nearly the size of the file."""
    return sum(_pad(stored_bytes(t, shape)) for t in architectures.tensors(shape))


def _pad(offset: int) -> int:
    return -(-offset // DEFAULT_ALIGNMENT) * DEFAULT_ALIGNMENT


@contextmanager
def _appearing(path: Path, size: int) -> Iterator[BinaryIO]:
    """A file that gets its name only when it is complete, and leaves nothing otherwise."""
    if not path.parent.is_dir():
        raise NotFoundError(f"no such directory: {path.parent}", hint="create it first")
    if os.path.lexists(path):
        raise UsageError(f"already exists: {path}", hint="remove it or choose another name")
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        if size > shutil.disk_usage(path.parent).free:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        try:
            with part.open("xb") as file:
                yield file
            part.replace(path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        hint = f"{human(size)} are needed" if size else ""
        raise ArrieroError(
            f"cannot write {path}: {error.strerror or error}",
            hint=hint or "choose another directory",
            id="disk-full" if full else "write",
        ) from error


def _metadata(shape: Shape, tensor_count: int) -> Iterator[bytes]:
    keys: dict[str, Value] = {
        "general.architecture": shape.arch,
        "general.name": shape.name,
        "general.file_type": _FILE_TYPES[shape.tensor_type],
        "general.quantization_version": 2,
        **architectures.metadata(shape),
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        **vocabulary.control_ids(),
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.ggml.add_eos_token": False,
        "tokenizer.chat_template": vocabulary.CHAT_TEMPLATE,
    }
    yield MAGIC + struct.pack("<IQQ", _VERSION, tensor_count, len(keys) + 3)
    for key, value in keys.items():
        yield _string(key) + _value(value)
    yield _string_array("tokenizer.ggml.tokens", shape.vocab, vocabulary.tokens(shape))
    yield _string_array("tokenizer.ggml.merges", 1, vocabulary.merges())
    yield _string("tokenizer.ggml.token_type") + _value(list(vocabulary.token_types(shape)))


def _tensor_table(tensors: list[Tensor], shape: Shape) -> Iterator[bytes]:
    offset = 0
    for tensor in tensors:
        dims = struct.pack(f"<I{len(tensor.dims)}Q", len(tensor.dims), *tensor.dims)
        kind = stored_type(tensor, shape)
        yield _string(tensor.name) + dims + struct.pack("<IQ", kind.id, offset)
        offset = _pad(offset + stored_bytes(tensor, shape))


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _string_array(key: str, count: int, texts: Iterable[str]) -> bytes:
    head = struct.pack("<IIQ", ValueType.ARRAY, ValueType.STRING, count)
    return _string(key) + head + b"".join(map(_string, texts))


def _value(value: Value) -> bytes:
    match value:
        case str():
            return struct.pack("<I", ValueType.STRING) + _string(value)
        case list():
            head = struct.pack("<IIQ", ValueType.ARRAY, ValueType.INT32, len(value))
            return head + struct.pack(f"<{len(value)}i", *value)
        case bool():
            kind = ValueType.BOOL
        case int():
            kind = ValueType.UINT32
        case float():
            kind = ValueType.FLOAT32
    return struct.pack(f"<I{SCALARS[kind]}", kind, value)
