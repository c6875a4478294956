"""Named shapes: small ones for demonstrations and tests, and published models at full size.

Each of the small ones has one component that dominates its memory. With ``-c 4096 --no-warmup`` and
address space limited to a few GiB (3,670,016 KiB in the ``LADDER_HYBRID`` case) each has a boundary
in ``-np`` or ``-c`` while the file stays small.
"""

from __future__ import annotations

import functools
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

# --- published models ---------------------------------------------------------------------------
# Dimensions are those of each model's config.json, tensor types those of the usual GGUF file.

LLAMA_3_1_8B: Final = Shape(
    arch="llama",
    name="llama-3.1-8b",
    tensor_type="q4_K_M",
    layers=32,
    embedding=4096,
    heads=32,
    heads_kv=8,
    head_dim=128,
    feed_forward=14336,
    vocab=128256,
    context_train=131072,
)
"""meta-llama/Llama-3.1-8B, dense."""

QWEN3_235B_A22B: Final = Shape(
    arch="qwen3moe",
    name="qwen3-235b-a22b",
    tensor_type="q4_K_M",
    layers=94,
    embedding=4096,
    heads=64,
    heads_kv=4,
    head_dim=128,
    feed_forward=12288,
    experts=128,
    experts_used=8,
    expert_feed_forward=1536,
    vocab=151936,
    context_train=40960,
)
"""Qwen/Qwen3-235B-A22B, mixture of experts."""

QWEN3_6_35B_A3B: Final = Shape(
    arch="qwen35moe",
    name="qwen3.6-35b-a3b",
    tensor_type="q4_K_M",
    layers=40,
    attention_every=4,
    embedding=2048,
    heads=16,
    heads_kv=2,
    head_dim=256,
    feed_forward=512,
    experts=256,
    experts_used=8,
    experts_shared=1,
    expert_feed_forward=512,
    ssm_state=128,
    ssm_heads=32,
    ssm_groups=16,
    vocab=248320,
    context_train=262144,
)
"""Qwen/Qwen3.5-35B-A3B and Qwen3.6-35B-A3B, hybrid, without the MTP layer (``mtp=1`` adds it)."""

DEEPSEEK_V2_LITE: Final = Shape(
    arch="deepseek2",
    name="deepseek-v2-lite",
    tensor_type="q4_K_M",
    layers=27,
    embedding=2048,
    heads=16,
    head_dim=128,
    q_lora=0,
    kv_lora=512,
    rope_dim=64,
    feed_forward=10944,
    dense_layers=1,
    experts=64,
    experts_used=6,
    experts_shared=2,
    expert_feed_forward=1408,
    vocab=102400,
    context_train=163840,
)
"""deepseek-ai/DeepSeek-V2-Lite, MLA."""

DEEPSEEK_V3: Final = Shape(
    arch="deepseek2",
    name="deepseek-v3",
    tensor_type="q4_K_M",
    layers=61,
    embedding=7168,
    heads=128,
    head_dim=128,
    q_lora=1536,
    kv_lora=512,
    rope_dim=64,
    feed_forward=18432,
    dense_layers=3,
    experts=256,
    experts_used=8,
    experts_shared=1,
    expert_groups=8,
    expert_feed_forward=2048,
    vocab=129280,
    context_train=163840,
)
"""deepseek-ai/DeepSeek-V3 and DeepSeek-R1 (671B), MLA, without the MTP layer."""

GPT_OSS_20B: Final = Shape(
    arch="gpt-oss",
    name="gpt-oss-20b",
    tensor_type="mxfp4",
    layers=24,
    attention_every=2,
    window=128,
    embedding=2880,
    heads=64,
    heads_kv=8,
    head_dim=64,
    feed_forward=2880,
    experts=32,
    experts_used=4,
    vocab=201088,
    context_train=131072,
)
"""openai/gpt-oss-20b: every other layer has a window of 128 tokens."""

GPT_OSS_120B: Final = replace(GPT_OSS_20B, name="gpt-oss-120b", layers=36, experts=128)
"""openai/gpt-oss-120b."""

PUBLISHED: Final = (
    LLAMA_3_1_8B,
    DEEPSEEK_V2_LITE,
    GPT_OSS_20B,
    QWEN3_6_35B_A3B,
    GPT_OSS_120B,
    QWEN3_235B_A22B,
    DEEPSEEK_V3,
)
"""Published models by size of the file."""


@functools.cache
def tiny(arch: str, **changes: Any) -> Shape:
    """A model of at most a few MB that loads in a fraction of a second.

    Raises:
        UsageError: The architecture is unknown or a dimension is impossible.
    """
    return Shape(**{"arch": arch, "name": f"tiny-{arch}", **changes})
