"""Limits on input from others: files, headers, answers. All limits are in this file.

Each is far above honest input, and low enough that one header or one document costs at most about a
second of CPU and 64 MiB. Input above a limit ends in a one-line error that says so.
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
"""Ten times as many as any known model has."""
HEADER_PARTS: Final = 9999
HEADER_NAME: Final = (1 << 16) - 1
"""Bytes of a key; llama.cpp's own limit."""
TENSOR_NAME: Final = 127
"""Bytes of a tensor's name: llama.cpp allows 63, ggml can be built for 127."""
HEADER_TEXT: Final = 4 * MIB
"""Bytes of memory for all keys, texts and tensor names, as Python objects."""
HEADER_STRINGS: Final = 1 << 21
"""Elements of arrays of strings: three times the largest vocabulary with its merges."""
HEADER_STRING_BYTES: Final = 1 << 28
"""Bytes of arrays of strings, which the reader skips."""
HEADER_NUMBERS: Final = 1 << 14
"""Elements of one array of numbers that is read; all arrays together may have 16 times as many."""
ALIGNMENT: Final = 1 << 20
ELEMENTS: Final = (1 << 63) - 1
LAYERS: Final = 1 << 14
"""llama.cpp allows 512."""
ARCHITECTURE: Final = 64
"""Characters of an architecture's name; llama.cpp's longest is 16."""
MODEL_NAME: Final = 200
"""Characters of ``general.name`` that are shown and stored."""

# --- what servers answer ------------------------------------------------------------------------

REPLY: Final = 4 * MIB
"""Bytes of a reply that are read; the longest honest reply is a few KiB."""
SLOTS: Final = 256
"""llama.cpp's own limit; every slot gets a request at the same time."""
SLOT_CONTEXT: Final = (1 << 31) - 1

# --- other files --------------------------------------------------------------------------------

DOCUMENT: Final = 64 * MIB
"""Bytes of one of Arriero's own documents."""
KEY_FILE: Final = 64 * KIB
CONFIG_FILE: Final = 256 * KIB
"""Bytes of a file of settings."""


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading; refuse anything else, such as a pipe without a writer.

    Raises:
        OSError: It does not exist, cannot be read, or is not a regular file.
    """
    file = open(path, "rb", opener=_at_once)  # noqa: SIM115  needs an opener; the caller's
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    file.close()
    raise OSError(errno.EINVAL, "it is not a regular file")


def expanded(typed: str | Path) -> Path:
    """The path with ``~`` replaced; unchanged if there is no such user."""
    try:
        return Path(typed).expanduser()
    except RuntimeError:
        return Path(typed)


def file_at(directory: Path, typed: str) -> Path | None:
    """The file that a path names, with ``~`` replaced; None if no such file can exist."""
    try:
        path = directory / expanded(typed)
        return path if path.is_file() else None
    except (OSError, ValueError):  # too long, a null in it
        return None


def _at_once(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
