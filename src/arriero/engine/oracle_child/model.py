"""A model without weights."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

from .choices import SPLIT_MODES, choice
from .dry_engine import DryEngine
from .library import Library
from .raw import by_value
from .refusal import NoAnswer

SETTINGS: Final = (
    *("model", "n_gpu_layers", "split_mode", "main_gpu", "tensor_split", "devices"),
    *("use_extra_bufts", "no_host", "load_mtp", "overrides"),
)
"""What `load_model` reads of a request."""


def load_model(engine: DryEngine, request: Mapping[str, Any]) -> int:
    """Load one model. Only the header of the file is read."""
    engine.account.forget()
    params = by_value(engine.model_params.filled(_values(engine, request)))
    model = engine.library.call(
        "llama_model_load_from_file",
        ctypes.c_void_p,
        os.fsencode(request["model"]),
        params,
        types=(ctypes.c_char_p, type(params)),
    )
    if not model:
        raise NoAnswer(engine.account.complaint("the engine cannot load the model"))
    if engine.account.allocated:
        raise NoAnswer("the engine allocated weights in a dry run")
    return int(model)


def free_model(engine: DryEngine, model: int) -> None:
    engine.library.call("llama_model_free", None, model)


def _values(engine: DryEngine, request: Mapping[str, Any]) -> dict[str, float]:
    library, members = engine.library, engine.model_params.members
    values = {
        "n_gpu_layers": request["n_gpu_layers"],
        "split_mode": choice(SPLIT_MODES, request, "split_mode"),
        "main_gpu": request["main_gpu"],
        "use_extra_bufts": request["use_extra_bufts"],
        "no_host": request["no_host"],
        "no_alloc": True,
        # Mapping and no_alloc exclude each other; 0 is the load mode "none".
        **({"load_mode": 0} if "load_mode" in members else {"use_mmap": 0}),
    }
    if "use_direct_io" in members:
        values["use_direct_io"] = 0
    if "load_mtp" in members:
        values["load_mtp"] = request["load_mtp"]
    if request["tensor_split"]:
        values["tensor_split"] = _tensor_split(library, request["tensor_split"])
    if request["devices"] is not None:
        values["devices"] = _devices(library, request["devices"])
    if request["overrides"]:
        values["tensor_buft_overrides"] = _overrides(library, request["overrides"])
    return values


# Addresses of arrays, which the library keeps pointers to.


def _tensor_split(library: Library, shares: Sequence[float]) -> int:
    most = library.call("llama_max_devices", ctypes.c_size_t)
    array = (ctypes.c_float * max(most, len(shares)))(*shares)
    library.keep(array)
    return ctypes.addressof(array)


def _devices(library: Library, names: Sequence[str]) -> int:
    """The devices, ended by null."""
    array = (ctypes.c_void_p * (len(names) + 1))(*(library.device(name) for name in names))
    library.keep(array)
    return ctypes.addressof(array)


def _overrides(library: Library, overrides: Sequence[Sequence[str]]) -> int:
    """Pairs of pattern and buffer type, ended by nulls."""
    types = {library.name(buft): buft for buft in library.device_buffer_types()}
    words: list[int] = []
    for pattern, buft in overrides:
        if buft not in types:
            raise NoAnswer(f"this engine has no buffer type {buft}")
        text = ctypes.create_string_buffer(pattern.encode())
        library.keep(text)
        words += [ctypes.addressof(text), types[buft]]
    array = (ctypes.c_void_p * (len(words) + 2))(*words, None, None)
    library.keep(array)
    return ctypes.addressof(array)
