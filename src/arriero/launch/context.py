"""The server's context arithmetic: how ``-c`` and ``-np`` become cells (src/llama-context.cpp)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from arriero.command import Command
from arriero.launch.builds import AFTER_10435
from arriero.launch.slots import Slots

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


@dataclass(frozen=True, kw_only=True)
class AskedContext:
    """The context that a command asks for, in tokens."""

    tokens: int | None
    """``-c``: 0 is the model's own, None where it is left out."""
    each: int
    """``--kv-unified-per-slot``, which stands for a missing ``-c``; 0 where it is left out."""

    @property
    def given(self) -> bool:
        return self.tokens is not None or self.each != 0


def asked_context(command: Command) -> AskedContext:
    """The context that a command asks for."""
    return AskedContext(
        tokens=command.number("-c"), each=command.number("--kv-unified-per-slot") or 0
    )


def tokens_of(
    asked: AskedContext, slots: Slots, *, fit: bool, n_ctx_train: int, build: int | None
) -> int:
    """Tokens of all slots together, before rounding; 0 is the model's own training context."""
    if asked.tokens:
        return max(0, asked.tokens)
    if asked.tokens is None and asked.each:
        return slots.count * asked.each
    # since a build after 10435 fit asks for the whole training context for each separate slot
    if fit and not slots.unified and (build is None or build >= AFTER_10435):
        return n_ctx_train * slots.count
    return 0
