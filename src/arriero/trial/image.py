"""An image for a request: grey, of any size, without a library."""

from __future__ import annotations

import base64
import struct
import zlib


def data_address(side: int) -> str:
    """A square PNG of so many pixels a side as a ``data:`` address."""
    head = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    rows = zlib.compress((b"\0" + b"\x80" * side) * side)
    file = b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", head) + _chunk(b"IDAT", rows)
    file += _chunk(b"IEND", b"")
    return f"data:image/png;base64,{base64.b64encode(file).decode()}"


def _chunk(name: bytes, data: bytes) -> bytes:
    checksum = struct.pack(">I", zlib.crc32(name + data))
    return struct.pack(">I", len(data)) + name + data + checksum
