"""How many tokens are worked on at once (``-b``, ``-ub``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from arriero.command import Command

_BATCH: Final = 2048
_UBATCH: Final = 512


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Tokens of a batch and of a micro-batch as the command has them, before any cut."""

    tokens: int
    ubatch: int
    given: bool
    """Whether the command sets ``-b``."""
    ubatch_given: bool


def batch_of(command: Command) -> Batch:
    """Batch and micro-batch of a command.

    ``-ub 0``, or less, makes the micro-batch as large as the batch (builds 10068 and 10434 log it).
    """
    tokens, ubatch = command.number("-b"), command.number("-ub")
    batch = tokens or _BATCH
    return Batch(
        tokens=batch,
        ubatch=_UBATCH if ubatch is None else ubatch if ubatch > 0 else batch,
        given=bool(tokens),
        ubatch_given=ubatch is not None,
    )


def is_embedding(command: Command) -> bool:
    """Whether the server embeds or ranks: it then reads a prompt in one piece."""
    return command.switch("--embedding") is True or command.switch("--rerank") is True
