"""The address of a request as the engine will read it.

llama-server decodes ``%XX`` in a path and drops what follows ``#`` before it looks for the endpoint
(builds 10068 to 10434). Whoever decides by the path must see the same: ``/%73lots/0`` is
``/slots/0``.
"""

from __future__ import annotations

import re
from typing import Final

_ESCAPE: Final = re.compile(rb"%([0-9A-Fa-f]{2})?")
_MEANS_SOMETHING: Final = b"%?#"
"""Decoded, these would be read as something else than what they were written for."""


def canonical(target: bytes) -> bytes | None:
    """The target with every escape in its path decoded that can be; None for one that misleads.

    The query stays as it is. Bytes beyond ASCII stay escaped.
    """
    if b"#" in target:
        return None
    path, mark, query = target.partition(b"?")
    if b"%" in path:
        found = [_decoded(match[1]) for match in _ESCAPE.finditer(path)]
        if None in found:
            return None
        rest = iter(found)
        path = _ESCAPE.sub(lambda _: next(rest) or b"", path)
    return path + mark + query


def _decoded(digits: bytes | None) -> bytes | None:
    """What an escape stands for, itself beyond ASCII; None if it may not be there."""
    if digits is None:
        return None
    byte = int(digits, 16)
    if byte >= 0x80:
        return b"%" + digits.upper()
    if byte <= 0x20 or byte == 0x7F or byte in _MEANS_SOMETHING:
        return None
    return bytes([byte])
