"""The dry run of a projector."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from typing import Any

from .choices import FLASH_ATTN, choice
from .dry_engine import DryEngine
from .layouts import PROJECTOR_LAYOUTS
from .raw import Map, by_value, nodes, word
from .refusal import NoAnswer


class _Usage(ctypes.Structure):
    """What ``mtmd_get_memory_usage`` returns: a map, in newer builds followed by more."""

    _fields_ = (("map", Map), ("more", ctypes.c_uint64 * 26))


def run_projector(engine: DryEngine, request: Mapping[str, Any]) -> dict[str, Any]:
    """What a projector takes when the server is ready: weights, and compute of its warm-up."""
    bare = _usage(engine, request, warmup=False)
    stored: dict[str, int] = {}
    for name, size in engine.account.allocated:
        stored[name] = stored.get(name, 0) + size
    whole = _usage(engine, request, warmup=True)
    flash_attn = request["flash_attn"] == "on"
    if request["flash_attn"] == "auto":
        flash_attn = whole == _usage(engine, {**request, "flash_attn": "on"}, warmup=True)
    if any(stored.get(name, 0) < size for name, size in bare.items()):
        raise NoAnswer("the engine's account of the projector's weights has an unknown form")
    return {
        "buffers": [
            {
                "device": name,
                "model": stored.get(name, 0),
                "tensors": bare.get(name, 0),
                "compute": size - bare.get(name, 0),
            }
            for name, size in whole.items()
        ],
        "flash_attn": flash_attn,
    }


def _usage(engine: DryEngine, request: Mapping[str, Any], *, warmup: bool) -> dict[str, int]:
    """Bytes by buffer type, without the padding of tensors."""
    library = engine.library
    engine.account.forget()
    engine.listen("mtmd_log_set")
    layout = library.defaults("mtmd_context_params_default", PROJECTOR_LAYOUTS)
    values = {name: request[name] for name in ("image_min_tokens", "image_max_tokens")}
    values |= {
        "use_gpu": request["use_gpu"],
        "flash_attn_type": choice(FLASH_ATTN, request, "flash_attn"),
        "warmup": warmup,
    }
    if request["device"] and request["use_gpu"] and "device" in layout.members:
        values["device"] = library.device(request["device"])
    params = by_value(layout.filled(values))
    usage = library.call(
        "_Z21mtmd_get_memory_usagePKc19mtmd_context_params",
        _Usage,
        os.fsencode(request["path"]),
        params,
        types=(ctypes.c_char_p, type(params)),
    )
    sizes: dict[str, int] = {}
    for node in nodes(usage.map):
        buft = library.call("ggml_backend_dev_buffer_type", ctypes.c_void_p, word(node + 32))
        sizes[library.name(buft)] = word(node + 40)
    if not sizes:
        raise NoAnswer(engine.account.complaint("the engine cannot load the projector"))
    return sizes
