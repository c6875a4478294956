"""Stand-ins for buffers: a few bytes that say they have the size asked for.

Recurrent state and output are allocated and cleared even with ``no_alloc``; a 64-slot hybrid would
take gigabytes. The two function pointers to replace (``alloc_buffer`` of the type, ``clear`` of the
buffer) are internal, so both are proved on buffers first.
"""

from __future__ import annotations

import ctypes
from typing import Final

from .account import Account
from .library import Library
from .raw import point, word
from .refusal import NoAnswer

_ALLOC_BUFFER: Final = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_CLEAR: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint8)
_STUB_BYTES: Final = 4160
"""What a stand-in buffer really holds: odd enough to be found by value in its struct."""


def stand_in_for_buffers(library: Library, account: Account) -> None:
    """Let every buffer type hand out stand-ins and enter what was asked for into ``account``."""
    cpu = library.call("ggml_backend_cpu_buffer_type", ctypes.c_void_p)
    stand_ins = _StandIns(library, account, _find_clear(library, cpu))
    types = {cpu}
    for device in library.devices():
        for getter in ("ggml_backend_dev_buffer_type", "ggml_backend_dev_host_buffer_type"):
            if buft := library.call(getter, ctypes.c_void_p, device):
                types.add(buft)
    for buft in types:
        stand_ins.replace_alloc(buft)


class _StandIns:
    def __init__(self, library: Library, account: Account, clear_offset: int) -> None:
        self._library = library
        self._account = account
        self._clear_offset = clear_offset
        self._no_clear = _CLEAR(lambda _buffer, _value: None)
        library.keep(self._no_clear)

    def replace_alloc(self, buft: int) -> None:
        slot, name = buft + 8, self._library.name(buft)
        if not word(slot):
            raise NoAnswer(f"the allocator of buffer type {name} is not where expected")
        original = _ALLOC_BUFFER(word(slot))

        def allocate(buft: int, size: int) -> int | None:
            buffer: int | None = original(buft, min(size, _STUB_BYTES))
            if buffer:
                self._account.allocated.append((name, size))
                ctypes.c_uint64.from_address(buffer + self._clear_offset + 32).value = size
                point(buffer + self._clear_offset, self._no_clear)
            return buffer

        replacement = _ALLOC_BUFFER(allocate)
        self._library.keep(original, replacement)
        point(slot, replacement)
        self._prove(buft, name)

    def _prove(self, buft: int, name: str) -> None:
        """One buffer larger than a stand-in: it is counted, and says that size itself."""
        asked = 3 * _STUB_BYTES
        buffer = _allocate(self._library, buft, asked)
        told = self._library.call("ggml_backend_buffer_get_size", ctypes.c_size_t, buffer)
        if self._account.allocated != [(name, asked)] or told != asked:
            raise NoAnswer(f"buffer type {name} allocates in an unknown way")
        self._library.call("ggml_backend_buffer_free", None, buffer)
        self._account.allocated.clear()


def _find_clear(library: Library, buft: int) -> int:
    """Where a buffer has its ``clear``: functions come first, then buffer type, context, size.

    ``clear`` is the last function but one.
    """
    buffer = _allocate(library, buft, _STUB_BYTES)
    at = [8 * i for i in range(16) if word(buffer + 8 * i) == buft]
    if len(at) != 1 or word(buffer + at[0] + 16) != _STUB_BYTES:
        raise NoAnswer("the layout of this engine's buffers is unknown")
    cleared: list[tuple[int, int]] = []
    probe = _CLEAR(lambda b, value: cleared.append((b, value)))
    point(buffer + at[0] - 16, probe)
    arguments = (ctypes.c_void_p, ctypes.c_uint8)
    library.call("ggml_backend_buffer_clear", None, buffer, 7, types=arguments)
    if cleared != [(buffer, 7)]:
        raise NoAnswer("this engine clears its buffers in an unknown way")
    library.call("ggml_backend_buffer_free", None, buffer)
    return at[0] - 16


def _allocate(library: Library, buft: int, size: int) -> int:
    arguments = (ctypes.c_void_p, ctypes.c_size_t)
    buffer = library.call(
        "ggml_backend_buft_alloc_buffer", ctypes.c_void_p, buft, size, types=arguments
    )
    if not buffer:
        raise NoAnswer(f"cannot allocate even {size} bytes of {library.name(buft)}")
    return int(buffer)
