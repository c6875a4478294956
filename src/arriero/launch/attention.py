"""Flash attention and the types of the KV cache (``-fa``, ``-ctk``, ``-ctv``)."""

from __future__ import annotations

from typing import Final, Literal

from arriero.command import Command

FlashAttn = Literal["auto", "on", "off"]
_FLASH: Final[dict[str, FlashAttn]] = {
    **dict.fromkeys(("on", "1", "true", "enabled"), "on"),
    **dict.fromkeys(("off", "0", "false", "disabled"), "off"),
}
CACHE_TYPES: Final = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
"""What ``-ctk`` and ``-ctv`` take (common/arg.cpp)."""
_PLAIN: Final = ("f32", "f16", "bf16")


def cache_type(command: Command, flag: str) -> str:
    """The type of a cache by its flag: ``-ctk``, ``-ctv``, or one of the draft's."""
    return command.value(flag) or "f16"


def swa_full(command: Command) -> bool:
    """Whether layers with a sliding window keep everything (``--swa-full``)."""
    return command.switch("--swa-full") is True


def flash_attn(command: Command, type_v: str | None = None) -> FlashAttn:
    """``-fa``. A quantised V cache needs it, and ``auto`` then means on."""
    said = _FLASH.get(command.value("-fa") or "", "auto")
    return "on" if said == "auto" and type_v is not None and type_v not in _PLAIN else said
