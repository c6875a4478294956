"""One engine's shared library: its functions, devices and buffer types."""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from .layouts import Field, Layout, fit_layout
from .refusal import NoAnswer

_CANARY: Final = 512
"""Bytes offered to a default-params function; the largest struct known is 176."""


class Library:
    """``libllama.so``, or ``libmtmd.so`` with what it depends on, loaded for good."""

    def __init__(self, path: str) -> None:
        try:
            self.lib = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            raise NoAnswer(f"the engine's library cannot be loaded: {error}") from error
        self.path = path
        self._kept: list[Any] = []

    # Calls

    def function(self, name: str, result: Any, types: Sequence[Any]) -> Callable[..., Any]:
        try:
            found = getattr(self.lib, name)
        except AttributeError as error:
            raise NoAnswer(f"this engine's library has no {name}") from error
        found.restype, found.argtypes = result, tuple(types)
        return found  # type: ignore[no-any-return] # ctypes function pointers are Any

    def call(self, name: str, result: Any, *args: Any, types: Sequence[Any] = ()) -> Any:
        return self.function(name, result, types or [ctypes.c_void_p] * len(args))(*args)

    def keep(self, *things: Any) -> None:
        """Let what the library has a pointer to live as long as the library."""
        self._kept += things

    def defaults(self, name: str, layouts: Mapping[int, Sequence[Field]]) -> Layout:
        """The layout of the struct that the default-params function ``name`` returns."""
        if platform.machine() == "x86_64":
            # A struct this large is returned through a hidden first argument: offering it two
            # different canaries shows which bytes the library writes.
            seen = []
            for canary in (0xA5, 0x5A):
                buffer = ctypes.create_string_buffer(bytes([canary]) * _CANARY, _CANARY)
                self.call(name, ctypes.c_void_p, ctypes.addressof(buffer))
                seen.append(buffer.raw)
            written = [a == b for a, b in zip(*seen, strict=True)]
            blob = bytes(b if w else 0 for b, w in zip(seen[0], written, strict=True))
            return fit_layout(layouts, blob, written)
        words = type(
            "Any", (ctypes.Structure,), {"_fields_": (("b", ctypes.c_uint64 * (_CANARY // 8)),)}
        )
        return fit_layout(layouts, bytes(self.call(name, words)), None)

    # Devices and buffer types

    def load_backends(self) -> None:
        self.call("llama_backend_init", None)
        if not self.call("ggml_backend_dev_count", ctypes.c_size_t):
            # Engines whose backends are plugins look beside the program, which is Python here.
            self.call(
                "ggml_backend_load_all_from_path",
                None,
                os.path.dirname(self.path).encode(),  # noqa: PTH120 - bytes for C
                types=(ctypes.c_char_p,),
            )

    def devices(self) -> Iterator[int]:
        for i in range(self.call("ggml_backend_dev_count", ctypes.c_size_t)):
            yield self.call("ggml_backend_dev_get", ctypes.c_void_p, i, types=(ctypes.c_size_t,))

    def device(self, name: str) -> int:
        device = self.call(
            "ggml_backend_dev_by_name",
            ctypes.c_void_p,
            name.encode(),
            types=(ctypes.c_char_p,),
        )
        if not device:
            raise NoAnswer(f"this engine has no device {name}")
        return int(device)

    def device_buffer_types(self) -> Iterator[int]:
        for device in self.devices():
            if buft := self.call("ggml_backend_dev_buffer_type", ctypes.c_void_p, device):
                yield int(buft)

    def name(self, buft: int) -> str:
        """A buffer type's name, as the log has it."""
        return str(
            self.call("ggml_backend_buft_name", ctypes.c_char_p, buft).decode("utf-8", "replace")
        )
