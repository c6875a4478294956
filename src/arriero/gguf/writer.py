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
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Final, Literal, TypeVar

from arriero.base.errors import ArrieroError, NotFoundError, UsageError
from arriero.base.sizes import human
from arriero.gguf import architectures, vocabulary
from arriero.gguf.architectures import Tensor, Value
from arriero.gguf.format import DEFAULT_ALIGNMENT, MAGIC, SCALARS, ValueType
from arriero.gguf.header import Scalar
from arriero.gguf.shape import MIXES, Shape
from arriero.gguf.weights import fill, stored_bytes, stored_type

_FILE_TYPES: Final = {
    "f32": 0,
    "f16": 1,
    "q4_0": 2,
    "q8_0": 7,
    "q4_K_M": 15,
    "bf16": 32,
    "mxfp4": 38,
}
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
        UsageError: The file exists already, or the tensor type is a mix, which has no weights.
        ArrieroError: The file cannot be written, e.g. because the disk is full.
    """
    if weights == "random" and shape.tensor_type in MIXES:
        raise UsageError(
            f"{shape.name}: random weights cannot be written as {shape.tensor_type}",
            hint="write it with --weights zeros",
        )
    tensors = list(architectures.tensors(shape))
    with appearing(path, model_bytes(shape) if weights == "random" else 0) as file:
        file.writelines(header_bytes(_metadata(shape), _tensor_table(tensors, shape)))
        offset = _pad(file.tell())
        for index, tensor in enumerate(tensors):
            if weights == "random":
                file.seek(offset)
                file.writelines(fill(tensor, shape, seed=seed, index=index))
            offset = _pad(offset + stored_bytes(tensor, shape))
        file.truncate(offset)
    return path


def model_bytes(shape: Shape) -> int:
    """Bytes of all tensors with padding: nearly the size of the file."""
    return sum(_pad(stored_bytes(t, shape)) for t in architectures.tensors(shape))


def _pad(offset: int) -> int:
    return -(-offset // DEFAULT_ALIGNMENT) * DEFAULT_ALIGNMENT


@contextmanager
def appearing(path: Path, size: int) -> Iterator[BinaryIO]:
    """A file that gets its name only when it is complete; otherwise nothing is left.

    On systems with nameless files (Linux), not even a kill leaves anything behind.

    Args:
        size: Bytes that must be free on the disk.

    Raises:
        NotFoundError, UsageError, ArrieroError: As :func:`write_model`.
    """
    if not path.parent.is_dir():
        raise NotFoundError(f"there is no directory {path.parent}", hint="create it first")
    if os.path.lexists(path):
        raise _taken(path)
    try:
        if size > shutil.disk_usage(path.parent).free:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        with ExitStack() as stack:
            nameless = _nameless(path.parent)
            if nameless is not None:
                with open(nameless, "wb") as file:  # noqa: PTH123 - a descriptor
                    yield file
                    file.flush()
                    # a directory descriptor, though not used, makes this a call that follows links
                    os.link(f"/proc/self/fd/{nameless}", path, src_dir_fd=nameless)
                return
            part = path.with_name(f".{path.name}.{os.getpid()}.part")
            stack.callback(part.unlink, missing_ok=True)
            with part.open("xb") as file:
                yield file
            if os.path.lexists(path):
                raise FileExistsError
            part.rename(path)
    except FileExistsError:
        raise _taken(path) from None
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        hint = f"free {human(size)} on the disk" if size else ""
        raise ArrieroError(
            f"cannot write {path}: {error.strerror or error}",
            hint=hint or "choose another directory",
            id="disk-full" if full else "write",
        ) from error


def _taken(path: Path) -> UsageError:
    return UsageError(f"{path} already exists", hint="remove it or choose another name")


def _nameless(directory: Path) -> int | None:
    """A new file without a name; None if the file system does not support it."""
    if sys.platform == "linux":
        with suppress(OSError):
            Path("/proc/self/fd").stat()  # without it the file could never get a name
            return os.open(directory, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o666)
    return None


def _metadata(shape: Shape) -> list[tuple[str, Encoded]]:
    keys: dict[str, Value] = {
        "general.architecture": shape.arch,
        "general.name": shape.name,
        "general.file_type": _FILE_TYPES[shape.tensor_type],
        "general.quantization_version": 2,
        **architectures.metadata(shape),
    }
    return [*((key, encode(value)) for key, value in keys.items()), *vocabulary_keys(shape.vocab)]


def _tensor_table(tensors: list[Tensor], shape: Shape) -> Iterator[Entry]:
    offset = 0
    for tensor in tensors:
        yield tensor.name, tensor.dims, stored_type(tensor, shape).id, offset
        offset = _pad(offset + stored_bytes(tensor, shape))


# --- encoding -----------------------------------------------------------------------------------

Entry = tuple[str, tuple[int, ...], int, int]
"""One row of the tensor table: name, dimensions, id of the type, offset from the first tensor."""


Encoded = bytes | Iterable[bytes]
"""A value as :func:`encode` makes it; a long one in pieces."""


def header_bytes(keys: Iterable[tuple[str, Encoded]], tensors: Iterable[Entry]) -> Iterator[bytes]:
    """A whole header in pieces, without the padding after it.

    Args:
        keys: Each with its value as :func:`encode` makes it.
    """
    held = list(keys)
    table = [
        _string(name)
        + struct.pack(f"<I{len(dims)}Q", len(dims), *dims)
        + struct.pack("<IQ", kind, offset)
        for name, dims, kind, offset in tensors
    ]
    yield MAGIC + struct.pack("<IQQ", _VERSION, len(table), len(held))
    for key, value in held:
        yield _string(key)
        if isinstance(value, bytes):
            yield value
        else:
            yield from value
    yield from table


def vocabulary_keys(count: int) -> Iterator[tuple[str, Encoded]]:
    """The keys of a vocabulary of so many tokens, values encoded."""
    keys: dict[str, Value] = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        **vocabulary.control_ids(count),
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.ggml.add_eos_token": False,
        "tokenizer.chat_template": vocabulary.CHAT_TEMPLATE,
    }
    yield from ((key, encode(value)) for key, value in keys.items())
    yield "tokenizer.ggml.token_type", _encode_integers(count, vocabulary.token_types(count))
    yield "tokenizer.ggml.tokens", encode_texts(count, vocabulary.tokens(count))
    yield "tokenizer.ggml.merges", encode_texts(1, vocabulary.merges())


def encode_texts(count: int, texts: Iterable[str]) -> Iterator[bytes]:
    """An array of strings with its type, in pieces: a vocabulary of millions is never held."""
    yield struct.pack("<IIQ", ValueType.ARRAY, ValueType.STRING, count)
    for some in _batched(texts):
        yield b"".join(map(_string, some))


def _encode_integers(count: int, numbers: Iterable[int]) -> Iterator[bytes]:
    yield struct.pack("<IIQ", ValueType.ARRAY, ValueType.INT32, count)
    for some in _batched(numbers):
        yield struct.pack(f"<{len(some)}i", *some)


_T = TypeVar("_T")


def _batched(items: Iterable[_T], size: int = 1 << 12) -> Iterator[list[_T]]:
    rest = iter(items)
    while some := list(islice(rest, size)):
        yield some


def encode(value: Value | Sequence[Scalar], kind: ValueType | None = None) -> bytes:
    """A metadata value with its type.

    Args:
        kind: None chooses the type that llama.cpp expects: 32 bits if they are enough; single
            integers are unsigned, integers in arrays are signed.
    """
    match value:
        case str():
            return struct.pack("<I", ValueType.STRING) + _string(value)
        case bool():
            kind = ValueType.BOOL
        case int():
            kind = kind or _integer_type(value, value)
        case float():
            kind = kind or _float_type((value,))
        case _:
            kind = kind or _array_type(value)
            head = struct.pack("<IIQ", ValueType.ARRAY, kind, len(value))
            return head + struct.pack(f"<{len(value)}{SCALARS[kind]}", *value)
    return struct.pack(f"<I{SCALARS[kind]}", kind, value)


def _float_type(values: Sequence[Scalar]) -> ValueType:
    """32 bits, as llama.cpp expects, if they can hold the values."""
    try:
        struct.pack(f"<{len(values)}f", *values)
    except OverflowError:
        return ValueType.FLOAT64
    return ValueType.FLOAT32


def _array_type(values: Sequence[Scalar]) -> ValueType:
    if any(isinstance(v, float) for v in values):
        return _float_type(values)
    if values and all(isinstance(v, bool) for v in values):
        return ValueType.BOOL
    low, high = min(map(int, values), default=0), max(map(int, values), default=0)
    fits = low >= -(1 << 31) and high < 1 << 31
    return ValueType.INT32 if fits else _integer_type(low, high)


def _integer_type(low: int, high: int) -> ValueType:
    if low < 0:
        return ValueType.INT32 if low >= -(1 << 31) and high < 1 << 31 else ValueType.INT64
    return ValueType.UINT32 if high < 1 << 32 else ValueType.UINT64


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data
