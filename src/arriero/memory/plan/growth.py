"""What adds to the lines that grow, and the flag that caps each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from arriero.base.words import Component
from arriero.memory.plan.context import ContextSizes
from arriero.memory.plan.host import CHECKPOINTS_OF_A_TURN, checkpoint_bytes, saved_prompt_bytes
from arriero.memory.plan.lines import growth
from arriero.record import PlanBuffer, PlanGrowth

_USUAL_PROMPT: Final = 4096
"""Tokens of a saved prompt that growth is told in, where a slot holds as many."""


def growth_of(context: ContextSizes, buffers: Sequence[PlanBuffer]) -> Iterator[PlanGrowth]:
    """For each line what fills it."""
    h, tensors, rules = context.hparams, context.tensors, context.inputs.rules
    params, launch = context.params, context.inputs.launch
    tokens = min(_USUAL_PROMPT, context.effective.context.n_ctx_seq)
    for b in buffers:
        if b.component is Component.PROMPT_CACHE:
            size = saved_prompt_bytes(h, params, tensors, tokens, rules)
            yield growth(b, size, f"saved prompt of {tokens} tokens", "-cram")
        elif b.component is Component.CHECKPOINTS:
            each = checkpoint_bytes(h, params, tensors, rules)
            turn = each * min(CHECKPOINTS_OF_A_TURN, max(1, launch.checkpoints))
            yield growth(b, turn, "turn of a chat", "-ctxcp")
        elif b.component is Component.POOL and b.grows:
            yield growth(b, None, "longer prompt than any before", "-ub")
