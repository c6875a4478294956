"""Host memory that grows while serving, in no table of llama.cpp: prompt cache, checkpoints."""

from __future__ import annotations

from dataclasses import dataclass

from arriero.base.sizes import MIB
from arriero.command import Command
from arriero.launch.launch import DEFAULT_CACHE_MIB, DEFAULT_CHECKPOINTS


@dataclass(frozen=True)
class HostCaches:
    """The most that the two caches can take, in bytes; null where nothing limits them."""

    prompt_cache: int | None
    checkpoints: int | None
    per_checkpoint: int | None

    @property
    def most(self) -> int | None:
        """Both together; copies of checkpoints in saved prompts count as saved prompts."""
        if self.prompt_cache is None or self.checkpoints is None:
            return None
        return self.prompt_cache + self.checkpoints


def host_caches(command: Command, *, n_slots: int, per_checkpoint: int | None) -> HostCaches:
    """The worst case of both caches for a command.

    Args:
        per_checkpoint: Bytes of one checkpoint as logged; null if the server made none, in which
            case its model needs none (plain attention can drop tokens from the end).
    """
    cache: int | None = 0
    if command.flags.get("--cache-ram") is not None:
        mib = _number(command.value("--cache-ram"), DEFAULT_CACHE_MIB)
        cache = None if mib < 0 else mib * MIB
    checkpoints = 0
    if per_checkpoint and command.flags.get("--ctx-checkpoints") is not None:
        count = _number(command.value("--ctx-checkpoints"), DEFAULT_CHECKPOINTS)
        checkpoints = max(0, count) * n_slots * per_checkpoint
    return HostCaches(cache, checkpoints, per_checkpoint)


def _number(text: str | None, default: int) -> int:
    try:
        return int(text) if text is not None else default
    except ValueError:
        return default
