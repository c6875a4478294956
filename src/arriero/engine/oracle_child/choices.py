"""The numbers that libllama has for the words of a request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from .refusal import NoAnswer

CONTEXT_TYPES: Final = {"default": 0, "mtp": 1}
SPLIT_MODES: Final = {"none": 0, "layer": 1, "row": 2, "tensor": 3}
CACHE_TYPES: Final = {
    "f32": 0,
    "f16": 1,
    "q4_0": 2,
    "q4_1": 3,
    "q5_0": 6,
    "q5_1": 7,
    "q8_0": 8,
    "iq4_nl": 20,
    "bf16": 30,
}
"""ggml types as files number them."""
FLASH_ATTN: Final = {"auto": -1, "off": 0, "on": 1}


def choice(table: Mapping[str, int], request: Mapping[str, Any], name: str) -> int:
    if request[name] not in table:
        raise NoAnswer(f"{name} must be one of {', '.join(table)}, not {request[name]}")
    return table[request[name]]
