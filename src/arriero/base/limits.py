"""How much is taken of what others wrote: files, headers, answers. Every ceiling stands here.

Each is far above what honest input holds and low enough that one header or one document costs at
most about a second of CPU and 64 MiB. What is above it ends in one line that says so.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO, Final

from arriero.base.sizes import KIB, MIB

# --- model headers, all parts of a split set together -------------------------------------------

HEADER_KEYS: Final = 1 << 14
HEADER_TENSORS: Final = 1 << 14
"""Ten times what the models with the most tensors have."""
HEADER_PARTS: Final = 9999
HEADER_NAME: Final = (1 << 16) - 1
"""Bytes of a key, llama.cpp's own ceiling."""
TENSOR_NAME: Final = 127
"""Bytes of a tensor's name: llama.cpp takes 63, ggml can be built for 127."""
HEADER_TEXT: Final = 4 * MIB
"""Bytes that all keys, texts and names of tensors take as Python holds them."""
HEADER_STRINGS: Final = 1 << 21
"""Elements of arrays of strings: three times the largest vocabulary with its merges."""
HEADER_STRING_BYTES: Final = 1 << 28
"""Bytes of arrays of strings, which are stepped over."""
HEADER_NUMBERS: Final = 1 << 14
"""Elements up to which an array of numbers is read, and 16 times as many in all."""
ALIGNMENT: Final = 1 << 20
ELEMENTS: Final = (1 << 63) - 1
LAYERS: Final = 1 << 14
"""llama.cpp takes 512."""
ARCHITECTURE: Final = 64
"""Characters of an architecture's name; llama.cpp's longest is 16."""
MODEL_NAME: Final = 200
"""Characters of ``general.name`` that are shown and kept."""

# --- what servers answer ------------------------------------------------------------------------

REPLY: Final = 4 * MIB
"""Bytes of a reply that are read; the longest that a server sends here is a few KiB."""
SLOTS: Final = 256
"""llama.cpp's own ceiling; every slot gets a request at the same time."""
SLOT_CONTEXT: Final = (1 << 31) - 1

# --- other files --------------------------------------------------------------------------------

DOCUMENT: Final = 64 * MIB
"""Bytes of one of Arriero's own documents."""
KEY_FILE: Final = 64 * KIB


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading; anything else, such as a pipe without a writer, is refused.

    Raises:
        OSError: It does not exist, cannot be read, or is no regular file.
    """
    file = open(path, "rb", opener=_at_once)  # noqa: SIM115  needs an opener; the caller's
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    file.close()
    raise OSError(errno.EINVAL, "it is no regular file")


def expanded(typed: str | Path) -> Path:
    """The path with ``~`` filled in; as it is where no such user is known."""
    try:
        return Path(typed).expanduser()
    except RuntimeError:
        return Path(typed)


def file_at(directory: Path, typed: str) -> Path | None:
    """The file that somebody means by a path, ``~`` filled in; null where there can be none."""
    try:
        path = directory / expanded(typed)
        return path if path.is_file() else None
    except (OSError, ValueError):  # too long, a null in it
        return None


def _at_once(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
