"""What the engine can be asked to plan: a model with effective settings, a projector."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class EngineParams:
    """One model with one set of effective settings, named as in llama.cpp's C API.

    The defaults are those of ``llama-server``. ``n_ctx`` 0 is the model's own. ``n_outputs_max``
    and ``n_outputs_max_per_seq`` None are what the server sets for ``n_rs_seq`` drafted tokens (0
    without speculation): ``n_seq_max * (1 + n_rs_seq)``, at most ``n_batch``, and ``1 + n_rs_seq``;
    an embedding server asks for ``n_batch`` outputs. ``devices`` None are those the engine takes by
    itself; an empty ``tensor_split`` is by free memory. ``overrides`` (``-ot``) are patterns of
    tensor names and the buffer types that they go to: the first that matches wins. ``ctx_type``
    ``mtp`` is the draft context of a model with MTP layers, and needs ``load_mtp``.
    """

    model: Path
    n_ctx: int
    n_batch: int = 2048
    n_ubatch: int = 512
    n_seq_max: int = 1
    kv_unified: bool = False
    n_rs_seq: int = 0
    n_outputs_max: int | None = None
    n_outputs_max_per_seq: int | None = None
    type_k: str = "f16"
    type_v: str = "f16"
    flash_attn: Literal["auto", "on", "off"] = "auto"
    swa_full: bool = False
    offload_kqv: bool = True
    op_offload: bool = True
    embeddings: bool = False
    ctx_type: Literal["default", "mtp"] = "default"
    n_gpu_layers: int = -1
    split_mode: Literal["none", "layer", "row", "tensor"] = "layer"
    main_gpu: int = 0
    tensor_split: tuple[float, ...] = ()
    overrides: tuple[tuple[str, str], ...] = ()
    devices: tuple[str, ...] | None = None
    use_extra_bufts: bool = True
    no_host: bool = False
    load_mtp: bool = False


@dataclass(frozen=True, kw_only=True)
class ProjectorParams:
    """A multimodal projector as ``--mmproj`` and the flags beside it set it up.

    The defaults are those of ``llama-server``; -1 leaves the limits of an image to the projector.
    ``device`` empty is the engine's own choice. Builds that read it from ``MTMD_BACKEND_DEVICE``
    alone are not told of it.
    """

    path: Path
    use_gpu: bool = True
    device: str = ""
    flash_attn: Literal["auto", "on", "off"] = "auto"
    image_min_tokens: int = -1
    image_max_tokens: int = -1
    warmup: bool = True
    """Whether the server reserves compute at its start; without, with the first image."""
