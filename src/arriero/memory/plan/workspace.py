"""Lines for what a backend takes for itself while it computes, in no buffer of llama.cpp's."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from arriero.base.sizes import human
from arriero.base.words import Component, Method
from arriero.gguf import Header
from arriero.launch.context import pad
from arriero.memory.caches import Effective
from arriero.memory.hparams import Hparams
from arriero.memory.plan.context import ContextSizes
from arriero.memory.plan.inputs import Inputs
from arriero.memory.plan.lines import growing
from arriero.record import PlanBuffer

_WITHOUT_WORKSPACE: Final = re.compile(r"(CPU|MTL|Metal|BLAS)")
_PADDED: Final = 256
_F32: Final = 4
_SPLITS: Final = 8
_MOST_SPLIT: Final = 128 << 20
"""Products are split only while they leave half of the cores idle, so that the parts stay small."""


def workspace_lines(context: ContextSizes, layers: Sequence[str]) -> Iterator[PlanBuffer]:
    """Bounded where the backend's source bounds it, else unknown."""
    inputs, h = context.inputs, context.hparams
    for device in dict.fromkeys(layers):
        widest = widest_activation(inputs.basis.header, h)
        size = workspace_bound(device, h, context.effective, widest)
        if size:
            reason = "scratch memory of matrix products"
            yield growing(Component.POOL, device, size, Method.ESTIMATED, reason)
        elif size is None and not _computes_on_cpu(inputs, device):
            what = "how much its backend keeps is unknown"
            if not device.startswith("RPC"):
                what = "grows with the longest prompt"
            reason = f"{what}; margin {human(inputs.margins.get(device, 0))}"
            yield growing(Component.POOL, device, None, Method.UNKNOWN, reason)


def _computes_on_cpu(inputs: Inputs, device: str) -> bool:
    """A worker on a CPU reports all of its memory as free."""
    listed = (one for pool in inputs.basis.pools for one in pool.listed if one.name == device)
    first = next(listed, None)
    return first is not None and device.startswith("RPC") and first.free == first.total


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
