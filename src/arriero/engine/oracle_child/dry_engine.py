"""One engine made ready for dry runs."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from .account import Account
from .buffers import stand_in_for_buffers
from .layouts import CONTEXT_LAYOUTS, MODEL_LAYOUTS
from .library import Library
from .raw import Map
from .refusal import NoAnswer

_LOG: Final = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)


class DryEngine:
    """An engine's library with its log heard and every buffer it hands out a stand-in.

    ``breakdown`` gives a context's memory as a `Map` from buffer type to three sizes.

    Args:
        path: ``libllama.so``, or ``libmtmd.so``, through which it is found.

    Raises:
        NoAnswer: It cannot be loaded, or is not built as those known here.
    """

    def __init__(self, path: str) -> None:
        self.library = Library(path)
        self.account = Account()
        self._log = _LOG(self.account.hear)
        self.library.keep(self._log)
        self.listen("llama_log_set")
        self.model_params = self.library.defaults("llama_model_default_params", MODEL_LAYOUTS)
        self.context_params = self.library.defaults("llama_context_default_params", CONTEXT_LAYOUTS)
        self.breakdown = _find_breakdown(self.library)
        self.library.load_backends()
        stand_in_for_buffers(self.library, self.account)

    def listen(self, setter: str) -> None:
        """Have the log of the library part with this ``*_log_set`` written to the account."""
        self.library.call(setter, None, self._log, None, types=(_LOG, ctypes.c_void_p))


def _find_breakdown(library: Library) -> Callable[..., Any]:
    # The free function came after the method it calls; both return the same map.
    for name in (
        "_Z26llama_get_memory_breakdownPK13llama_context",
        "_ZNK13llama_context16memory_breakdownEv",
    ):
        with suppress(NoAnswer):
            return library.function(name, Map, (ctypes.c_void_p,))
    raise NoAnswer("this engine's library gives no memory breakdown")
