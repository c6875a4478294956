"""The server's context arithmetic: how ``-c`` and ``-np`` become cells (src/llama-context.cpp)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

PAD: Final = 256
"""Contexts are rounded up to a multiple of this many tokens."""


@dataclass(frozen=True)
class Context:
    """Tokens of all slots together, tokens of one slot, slots."""

    n_ctx: int
    n_ctx_seq: int
    n_seq_max: int
    unified: bool

    @property
    def cells(self) -> int:
        """Cells of a full-attention KV cache."""
        return self.n_ctx


def pad(value: int, to: int = PAD) -> int:
    return -(-value // to) * to


def context(tokens: int, slots: int, *, unified: bool) -> Context:
    """What the server makes of a context of ``tokens`` for ``slots`` slots.

    With separate slots each gets an equal share, rounded up: the total can grow beyond what was
    asked for (``-c 4096 -np 64`` is 16384 tokens).
    """
    slots = max(1, slots)
    n_ctx = pad(max(1, tokens))
    if unified:
        return Context(n_ctx, n_ctx, slots, True)
    each = max(PAD, pad(n_ctx // slots))
    return Context(each * slots, each, slots, False)


def context_step(slots: int, *, unified: bool) -> int:
    """Smallest change of ``-c`` that is not rounded away."""
    return PAD if unified else PAD * max(1, slots)
