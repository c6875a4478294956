"""What grows in host memory while serving: saved prompts and context checkpoints."""

from __future__ import annotations

from typing import Final

from arriero.base.sizes import MIB
from arriero.command import Command

PROMPT_CACHE: Final = "-cram"
"""The flag that limits saved prompts, in MiB."""
CHECKPOINTS: Final = "-ctxcp"
"""The flag that limits checkpoints, by their number for each slot."""
DEFAULT_CACHE_MIB: Final = 8192
"""``--cache-ram`` (common/common.h)."""
DEFAULT_CHECKPOINTS: Final = 32
"""``--ctx-checkpoints`` per slot (common/common.h)."""


def prompt_cache(command: Command) -> int | None:
    """Limit of the prompt cache in bytes; None where nothing limits it, 0 where there is none.

    A number is read as far as it goes: ``-cram 512x`` is 512 MiB (builds 10068 and 10434 log it).
    """
    if not command.flags.knows(PROMPT_CACHE):
        return 0
    mib = command.number(PROMPT_CACHE)
    mib = DEFAULT_CACHE_MIB if mib is None else mib
    return None if mib < 0 else mib * MIB


def checkpoints(command: Command) -> int:
    """The most checkpoints that a slot keeps."""
    if not command.flags.knows(CHECKPOINTS):
        return 0
    count = command.number(CHECKPOINTS)
    return DEFAULT_CHECKPOINTS if count is None else max(0, count)
