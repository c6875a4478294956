"""A bound for compute buffers where no engine can be asked.

llama.cpp's allocator reuses memory over a graph that changes from build to build, so that no
formula is exact. This one adds what is alive at once in the widest places, generously;
``bench/plan_accuracy.py`` holds it against real servers.
"""

from __future__ import annotations

import re
from typing import Final

from arriero.engine.request import DryRunRequest
from arriero.gguf import Header
from arriero.memory.caches import Effective
from arriero.memory.context import pad
from arriero.memory.hparams import Hparams

_F32: Final = 4
_MASK: Final = 6
"""Bytes per cell and token: the mask in f32 and in f16."""
_RESIDUALS: Final = 10
_HEADS: Final = 4
_WIDE: Final = 3
_STATES: Final = 6
_FIXED: Final = 2 << 20
_COPIES: Final = 4
"""GGML_SCHED_MAX_COPIES."""


def compute_bound(
    hparams: Hparams, request: DryRunRequest, eff: Effective, widest: int, *, pipeline: bool = False
) -> int:
    """Bytes that the compute buffer of one device stays below.

    Args:
        widest: Elements per token of the widest activation inside a layer (feed-forward, experts).
        pipeline: Several devices work on a batch in turns: each holds its inputs four times.
    """
    h, context = hparams, eff.context
    slots = max(1, context.n_seq_max)
    tokens = pad(min(context.n_ctx, eff.n_ubatch), slots)
    heads = max(
        (h.n_head[il] * max(h.head_k, h.head_v, h.head_k_swa) for il in range(h.n_layer_all)),
        default=0,
    )
    inner = max(h.n_embd_r, h.n_embd_s // max(1, h.n_embd)) + h.n_embd
    per_token = _RESIDUALS * h.n_embd + _HEADS * heads + _WIDE * max(widest, inner)
    cells = context.n_ctx_seq
    total = _F32 * tokens * per_token + _MASK * tokens * cells
    if not eff.flash_attn:
        total += 3 * _F32 * max(h.n_head, default=0) * tokens * cells
    total += _STATES * _F32 * slots * (1 + eff.n_rs_seq) * (h.n_embd_r + h.n_embd_s)
    total += 2 * _F32 * eff.n_outputs_max * h.n_vocab
    if pipeline:
        total += (_COPIES - 1) * tokens * (_MASK * cells + 2 * _F32 * h.n_embd)
    return total + _FIXED


_WITHOUT_WORKSPACE: Final = re.compile(r"(CPU|MTL|Metal|BLAS)")
_PADDED: Final = 256
_SPLITS: Final = 8
_MOST_SPLIT: Final = 128 << 20
"""Products are split only while they leave half of the cores idle, so that the parts stay small."""


def workspace_bound(device: str, hparams: Hparams, eff: Effective, widest: int) -> int | None:
    """Bytes that a backend takes on a device beside every buffer; null where nothing bounds it.

    By llama.cpp's source: CUDA, ROCm, MUSA, SYCL and CANN keep a pool that grows with whatever a
    prompt needs. Metal counts its scratch into its tensors, so that compute holds it. Vulkan keeps
    the activations of the widest product in the type that it computes in, and the parts of products
    that it splits; weights of a type without a kernel of its own would come on top. On software
    Vulkan no prompt made it grow.
    """
    if _WITHOUT_WORKSPACE.match(device):
        return 0
    if not device.startswith("Vulkan"):
        return None
    tokens = pad(min(eff.context.n_ctx, eff.n_ubatch), _PADDED)
    wide = max(widest, hparams.n_embd)
    return 2 * tokens * wide + min(_SPLITS * _F32 * tokens * wide, _MOST_SPLIT)


def widest_activation(header: Header, hparams: Hparams) -> int:
    """Elements per token of the widest activation inside a layer, experts in use together."""

    def number(key: str) -> int:
        value = header.metadata.get(f"{hparams.arch}.{key}")
        if isinstance(value, tuple):
            return max((int(v) for v in value if isinstance(v, int)), default=0)
        return value if isinstance(value, int) else 0

    experts = number("expert_used_count") * number("expert_feed_forward_length")
    shared = number("expert_shared_feed_forward_length")
    return max(*hparams.n_ff, experts + shared, number("ssm.inner_size"))
