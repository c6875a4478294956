"""What decides the size of a model's caches: its hyperparameters, per layer."""

from __future__ import annotations

from dataclasses import dataclass, replace

from arriero.base.errors import ModelError
from arriero.memory.architectures import Arch, Memory

Flags = tuple[bool, ...]
Counts = tuple[int, ...]


class UnknownArchitectureError(ModelError):
    """The header is fine, but nothing is known about what this architecture keeps in memory."""

    default_id = "arch-unknown"


@dataclass(frozen=True, kw_only=True)
class Hparams:
    """What decides the size of KV cache and recurrent state.

    Tuples have one entry per layer, ``n_layer_all`` of them: NextN (MTP) layers, loops and router
    layers included. Sizes are elements; ``n_embd_r`` and ``n_embd_s`` those of one row.
    """

    arch: str
    rules: Arch
    n_layer_all: int
    n_layer_nextn: int
    n_embd: int
    n_embd_out: int
    n_vocab: int
    n_ctx_train: int
    causal: bool
    n_head: Counts
    n_head_kv: Counts
    n_ff: Counts
    head_k: int
    head_v: int
    head_k_swa: int
    head_v_swa: int
    n_swa: int
    """0 where there is no sliding window."""
    is_swa: Flags
    is_mla: bool
    is_recurrent: Flags
    n_embd_r: int = 0
    n_embd_s: int = 0
    ple_state: int = 0
    """qwen4exp: elements of one row of its convolution history, on the layers of ``is_ple``."""
    is_ple: Flags = ()
    n_layer_kv: int | None = None
    """Only so many layers from the start have a cache of their own."""
    nextn_cached: bool = False
    """Any KV cache covers trunk and NextN layers alike."""
    n_layer_dense_lead: int = 0
    indexer_head: int = 0
    is_indexer_full: Flags = ()
    kpool: int = 0
    compress_ratios: Counts = ()

    @property
    def n_layer(self) -> int:
        """Layers of the trunk."""
        return self.n_layer_all - self.n_layer_nextn

    @property
    def memory(self) -> Memory:
        return self.rules.memory

    @property
    def has_window(self) -> bool:
        return any(self.is_swa)

    def k_gqa(self, il: int) -> int:
        return (self.head_k_swa if self.is_swa[il] else self.head_k) * self.n_head_kv[il]

    def v_gqa(self, il: int) -> int:
        return (self.head_v_swa if self.is_swa[il] else self.head_v) * self.n_head_kv[il]

    @property
    def v_gqa_max(self) -> int:
        return max(map(self.v_gqa, range(self.n_layer_all)), default=0)

    def with_one_head(self, key: int) -> Hparams:
        """As an indexer sees the model: one key head of its own size in every layer."""
        return replace(self, n_head_kv=(1,) * self.n_layer_all, head_k=key)
