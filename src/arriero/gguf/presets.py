"""Shapes for demonstrations and tests, each with one component that dominates its memory.

With ``-c 4096 --no-warmup`` and address space limited to a few GiB (3,670,016 KiB in the
``LADDER_HYBRID`` case) each has a boundary in ``-np`` or ``-c`` while the file stays small.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from arriero.gguf.shape import Shape

LADDER_HYBRID: Final = Shape(
    arch="qwen35",
    name="ladder-hybrid",
    layers=40,
    attention_every=4,
    embedding=256,
    heads=2,
    heads_kv=2,
    head_dim=64,
    feed_forward=256,
    vocab=512,
    context_train=1 << 20,
    ssm_state=128,
    ssm_heads=32,
    ssm_groups=16,
)
"""30 recurrent and 10 attention layers: 62.81 MiB of RS per slot, 5 KiB of KV per token."""

LADDER_RECURRENT: Final = Shape(
    arch="mamba2",
    name="ladder-recurrent",
    layers=16,
    embedding=128,
    vocab=512,
    context_train=1 << 20,
    ssm_state=256,
    ssm_inner=4096,
    ssm_heads=64,
    ssm_groups=1,
)
"""16 layers: 64.84 MiB of RS per slot and no KV."""

LADDER_DENSE: Final = Shape(
    arch="llama",
    name="ladder-dense",
    layers=16,
    embedding=256,
    heads=32,
    heads_kv=32,
    head_dim=128,
    feed_forward=256,
    vocab=512,
    context_train=1 << 20,
)
"""256 KiB of KV per token: 1 GiB with ``-c 4096``."""

LADDER_SWA: Final = Shape(
    arch="gemma3",
    name="ladder-swa",
    layers=24,
    attention_every=6,
    window=1024,
    embedding=256,
    heads=16,
    heads_kv=16,
    head_dim=256,
    feed_forward=256,
    vocab=512,
    context_train=1 << 20,
)
"""4 full and 20 SWA layers, 16 KiB of KV per layer and token; SWA layers hold at most
window + micro-batch tokens per slot."""


def tiny(arch: str, **changes: Any) -> Shape:
    """A model of at most a few MB that loads in a fraction of a second.

    Raises:
        UsageError: The architecture is unknown or a dimension is impossible.
    """
    return replace(Shape(arch=arch, name=f"tiny-{arch}"), **changes)
