"""Host memory that grows while serving, in no table of llama.cpp: prompt cache, checkpoints."""

from __future__ import annotations

from dataclasses import dataclass

from arriero.command import Command
from arriero.launch import caches


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
    most = 0
    if per_checkpoint:
        most = caches.checkpoints(command) * n_slots * per_checkpoint
    return HostCaches(caches.prompt_cache(command), most, per_checkpoint)
