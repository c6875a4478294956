"""What stands at an address: words, function pointers, ``std::map``, structs passed by value."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

from .refusal import NoAnswer


class Map(ctypes.Structure):
    """libstdc++'s ``std::map``: comparator, then the red-black tree's header and count."""

    _fields_ = (
        ("compare", ctypes.c_uint64),
        ("colour", ctypes.c_uint64),
        ("root", ctypes.c_uint64),
        ("leftmost", ctypes.c_uint64),
        ("rightmost", ctypes.c_uint64),
        ("count", ctypes.c_uint64),
    )


def nodes(tree: Map) -> Iterator[int]:
    """Addresses of a map's nodes: colour, parent, left, right, then the pair of key and value."""
    left, seen = [tree.root], 0
    while left:
        node = left.pop()
        if not node:
            continue
        seen += 1
        if seen > tree.count or tree.count > 256:
            raise NoAnswer("the memory breakdown of this engine is not a map known here")
        left += [word(node + 16), word(node + 24)]
        yield node
    if seen != tree.count:
        raise NoAnswer("the memory breakdown of this engine is not a map known here")


def word(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value


def point(address: int, function: Any) -> None:
    """Put a function pointer at ``address``."""
    target = ctypes.cast(function, ctypes.c_void_p).value
    ctypes.c_void_p.from_address(address).value = target


def by_value(blob: bytes) -> ctypes.Structure:
    """A struct of these bytes, a multiple of 8, as an argument that is passed by value."""
    kind = type(
        "Params",
        (ctypes.Structure,),
        {"_fields_": (("words", ctypes.c_uint64 * (len(blob) // 8)),)},
    )
    return kind.from_buffer_copy(blob)  # type: ignore[attr-defined,no-any-return] # made above
