"""Metadata and tensors of each architecture, as llama.cpp's loader asks for them.

Sources: ``load_arch_hparams`` and ``load_arch_tensors`` in llama.cpp's ``src/models/*.cpp`` (build
10435), and what builds 10068, 10092 and 10434 say when one is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from arriero.gguf.shape import Shape

Value = str | bool | int | float | list[int]
Metadata = dict[str, Value]


class Init(Enum):
    """How random weights fill a tensor, so that activations neither vanish nor overflow."""

    EMBEDDING = auto()
    OUTPUT = auto()
    READ = auto()
    """A matrix that reads the residual stream or works inside a layer."""
    WRITE = auto()
    """A matrix that adds to the residual stream."""
    CONVOLUTION = auto()
    ONE = auto()
    HALF = auto()
    ZERO = auto()
    DECAY = auto()
    """``-exp(A)`` of a state space model: negative."""


@dataclass(frozen=True)
class Tensor:
    """One tensor: dimensions fastest first, as in the file."""

    name: str
    dims: tuple[int, ...]
    init: Init

    @property
    def matrix(self) -> bool:
        """Whether it is stored in the model's tensor type; everything else is f32."""
        return self.init in (Init.EMBEDDING, Init.OUTPUT, Init.READ, Init.WRITE)


Tensors = Iterator[Tensor]


def metadata(shape: Shape) -> Metadata:
    """The architecture's own keys, with their prefix."""
    return {f"{shape.arch}.{key}": value for key, value in _KEYS[shape.arch](shape).items()}


def tensors(shape: Shape) -> Tensors:
    """Every tensor of the model, in file order."""
    n, tied_norm = shape.embedding, shape.arch == "lfm2"
    yield Tensor("token_embd.weight", (n, shape.vocab), Init.EMBEDDING)
    # llama.cpp kept a converter's mistake: lfm2's last norm carries the embedding norm's name
    yield Tensor("token_embd_norm.weight" if tied_norm else "output_norm.weight", (n,), Init.ONE)
    if shape.arch == "rwkv7":
        yield Tensor("output_norm.bias", (n,), Init.ZERO)
        yield Tensor("token_embd_norm.weight", (n,), Init.ONE)
        yield Tensor("token_embd_norm.bias", (n,), Init.ZERO)
    if not shape.tied:
        yield Tensor("output.weight", (n, shape.vocab), Init.OUTPUT)
    for layer in range(shape.layers + shape.mtp):
        for tensor in _LAYERS[shape.arch](shape, layer):
            yield Tensor(f"blk.{layer}.{tensor.name}", tensor.dims, tensor.init)


def has_attention(shape: Shape, layer: int) -> bool:
    """Whether a hybrid's layer keeps a KV cache."""
    return (layer + 1) % shape.attention_every == 0


# --- keys ---------------------------------------------------------------------------------------


def _common(shape: Shape) -> Metadata:
    return {
        "vocab_size": shape.vocab,
        "context_length": shape.context_train,
        "embedding_length": shape.embedding,
        "block_count": shape.layers + shape.mtp,
        "feed_forward_length": shape.feed_forward,
        "attention.layer_norm_epsilon": 1e-5,
        "attention.layer_norm_rms_epsilon": 1e-6,
    }


def _attention(shape: Shape) -> Metadata:
    return {
        **_common(shape),
        "attention.head_count": shape.heads,
        "attention.head_count_kv": shape.heads_kv,
        "attention.key_length": shape.head_dim,
        "attention.value_length": shape.head_dim,
        "rope.dimension_count": shape.head_dim,
    }


def _ssm(shape: Shape) -> Metadata:
    return {
        "ssm.conv_kernel": shape.ssm_conv,
        "ssm.inner_size": shape.inner,
        "ssm.state_size": shape.ssm_state,
        "ssm.time_step_rank": shape.ssm_heads,
        "ssm.group_count": shape.ssm_groups,
    }


def _hybrid(shape: Shape) -> Metadata:
    """A layer without KV heads is recurrent."""
    heads_kv = [shape.heads_kv if has_attention(shape, i) else 0 for i in range(shape.layers)]
    return {**_attention(shape), "attention.head_count_kv": heads_kv}


def _gemma3(shape: Shape) -> Metadata:
    keys = _attention(shape)
    if shape.window:
        keys["attention.sliding_window"] = shape.window
        keys["attention.sliding_window_pattern"] = shape.attention_every
    return keys


def _qwen35(shape: Shape) -> Metadata:
    half = shape.head_dim // 2
    keys = _attention(shape) | _ssm(shape)
    keys["full_attention_interval"] = shape.attention_every
    keys["rope.dimension_sections"] = [half - 2 * (half // 3), half // 3, half // 3, 0]
    if shape.mtp:
        keys["nextn_predict_layers"] = shape.mtp
    return keys


def _moe(shape: Shape) -> Metadata:
    return {
        "expert_count": shape.experts,
        "expert_used_count": shape.experts_used,
        "expert_feed_forward_length": shape.expert_width,
    }


def _gpt_oss(shape: Shape) -> Metadata:
    window: Metadata = {
        "attention.sliding_window": shape.window,
        "attention.sliding_window_pattern": shape.attention_every,
    }
    return _attention(shape) | _moe(shape) | window


def _qwen35moe(shape: Shape) -> Metadata:
    shared = shape.experts_shared * shape.expert_width
    return _qwen35(shape) | _moe(shape) | {"expert_shared_feed_forward_length": shared}


def _nemotron_h(shape: Shape) -> Metadata:
    """Layers are one of three: state space, feed-forward, attention."""
    kinds = [_nemotron_kind(shape, i) for i in range(shape.layers)]
    heads_kv = [shape.heads_kv if kind == "attention" else 0 for kind in kinds]
    feed_forward = [shape.feed_forward if kind == "feed_forward" else 0 for kind in kinds]
    return {
        **_attention(shape),
        **_ssm(shape),
        "attention.head_count_kv": heads_kv,
        "feed_forward_length": feed_forward,
    }


def _nemotron_kind(shape: Shape, layer: int) -> str:
    if has_attention(shape, layer):
        return "attention"
    return "ssm" if layer % shape.attention_every % 2 == 0 else "feed_forward"


def _rwkv7(shape: Shape) -> Metadata:
    ranks = ("decay", "iclr", "value_residual_mix", "gate")
    return {
        **_common(shape),
        "wkv.head_size": shape.head_dim,
        "token_shift_count": 2,
        **{f"attention.{rank}_lora_rank": shape.lora for rank in ranks},
    }


def _deepseek2(shape: Shape) -> Metadata:
    """MLA: the cache holds one compressed row per token, whatever the number of heads."""
    keys: Metadata = {"attention.q_lora_rank": shape.q_lora} if shape.q_lora else {}
    if shape.expert_groups:
        keys["expert_group_count"] = shape.expert_groups
        keys["expert_group_used_count"] = (shape.expert_groups + 1) // 2
    return {
        **_common(shape),
        **keys,
        "attention.head_count": shape.heads,
        "attention.head_count_kv": 1,
        "attention.kv_lora_rank": shape.kv_lora,
        "attention.key_length": shape.kv_lora + shape.rope_dim,
        "attention.value_length": shape.kv_lora,
        "attention.key_length_mla": shape.head_dim + shape.rope_dim,
        "attention.value_length_mla": shape.head_dim,
        "rope.dimension_count": shape.rope_dim,
        "leading_dense_block_count": shape.dense_layers,
        **_moe(shape),
        "expert_shared_count": shape.experts_shared,
        "expert_weights_scale": 1.0,
        "expert_weights_norm": True,
        "expert_gating_func": 2,
    }


_KEYS: Final[dict[str, Callable[[Shape], Metadata]]] = {
    "llama": _attention,
    "gemma3": _gemma3,
    "gpt-oss": _gpt_oss,
    "qwen3moe": lambda shape: _attention(shape) | _moe(shape),
    "qwen35": _qwen35,
    "qwen35moe": _qwen35moe,
    "mamba": lambda shape: _common(shape) | _ssm(shape),
    "mamba2": lambda shape: _common(shape) | _ssm(shape),
    "granitehybrid": lambda shape: _hybrid(shape) | _ssm(shape),
    "nemotron_h": _nemotron_h,
    "rwkv7": _rwkv7,
    "lfm2": lambda shape: _hybrid(shape) | {"shortconv.l_cache": shape.ssm_conv},
    "falcon-h1": lambda shape: _attention(shape) | _ssm(shape),
    "deepseek2": _deepseek2,
}


# --- tensors of one layer -----------------------------------------------------------------------


def _norm(name: str, size: int) -> Tensor:
    return Tensor(f"{name}.weight", (size,), Init.ONE)


def _read(name: str, *dims: int) -> Tensor:
    return Tensor(f"{name}.weight", dims, Init.READ)


def _write(name: str, *dims: int) -> Tensor:
    return Tensor(f"{name}.weight", dims, Init.WRITE)


def _qkv(shape: Shape, q_scale: int = 1) -> Tensors:
    n, q, kv = shape.embedding, shape.heads * shape.head_dim, shape.heads_kv * shape.head_dim
    yield _read("attn_q", n, q * q_scale)
    yield _read("attn_k", n, kv)
    yield _read("attn_v", n, kv)
    yield _write("attn_output", q, n)


def _head_norms(shape: Shape) -> Tensors:
    yield _norm("attn_q_norm", shape.head_dim)
    yield _norm("attn_k_norm", shape.head_dim)


def _feed_forward(shape: Shape, suffix: str = "", size: int = 0) -> Tensors:
    n, f = shape.embedding, size or shape.feed_forward
    yield _read(f"ffn_gate{suffix}", n, f)
    yield _read(f"ffn_up{suffix}", n, f)
    yield _write(f"ffn_down{suffix}", f, n)


def _bias(name: str, *dims: int) -> Tensor:
    return Tensor(f"{name}.bias", dims, Init.ZERO)


def _experts(shape: Shape) -> Tensors:
    n, f, count = shape.embedding, shape.expert_width, shape.experts
    yield Tensor("ffn_gate_inp.weight", (n, count), Init.CONVOLUTION)
    yield _read("ffn_gate_exps", n, f, count)
    yield _read("ffn_up_exps", n, f, count)
    yield _write("ffn_down_exps", f, n, count)


def _mamba2_block(shape: Shape) -> Tensors:
    n, inner, groups, heads = shape.embedding, shape.inner, shape.ssm_groups, shape.ssm_heads
    channels = inner + 2 * groups * shape.ssm_state
    yield _read("ssm_in", n, inner + channels + heads)
    yield Tensor("ssm_conv1d.weight", (shape.ssm_conv, channels), Init.CONVOLUTION)
    yield Tensor("ssm_conv1d.bias", (channels,), Init.ZERO)
    yield Tensor("ssm_dt.bias", (heads,), Init.ZERO)
    yield Tensor("ssm_a", (1, heads), Init.DECAY)
    yield Tensor("ssm_d", (1, heads), Init.ONE)
    yield Tensor("ssm_norm.weight", (inner // groups, groups), Init.ONE)
    yield _write("ssm_out", inner, n)


def _llama_layer(shape: Shape, layer: int) -> Tensors:
    yield _norm("attn_norm", shape.embedding)
    yield from _qkv(shape)
    yield _norm("ffn_norm", shape.embedding)
    yield from _feed_forward(shape)


def _gemma3_layer(shape: Shape, layer: int) -> Tensors:
    yield from _llama_layer(shape, layer)
    yield from _head_norms(shape)
    yield _norm("post_attention_norm", shape.embedding)
    yield _norm("post_ffw_norm", shape.embedding)


def _gpt_oss_layer(shape: Shape, layer: int) -> Tensors:
    n, f, count = shape.embedding, shape.expert_width, shape.experts
    q, kv = shape.heads * shape.head_dim, shape.heads_kv * shape.head_dim
    yield _norm("attn_norm", n)
    yield from _qkv(shape)
    for name, size in (("q", q), ("k", kv), ("v", kv), ("output", n)):
        yield _bias(f"attn_{name}", size)
    yield Tensor("attn_sinks.weight", (shape.heads,), Init.ZERO)
    yield _norm("post_attention_norm", n)
    yield from _experts(shape)
    yield _bias("ffn_gate_inp", count)
    yield _bias("ffn_gate_exps", f, count)
    yield _bias("ffn_up_exps", f, count)
    yield _bias("ffn_down_exps", n, count)


def _qwen3moe_layer(shape: Shape, layer: int) -> Tensors:
    yield _norm("attn_norm", shape.embedding)
    yield from _qkv(shape)
    yield from _head_norms(shape)
    yield _norm("ffn_norm", shape.embedding)
    yield from _experts(shape)


def _qwen35_layer(shape: Shape, layer: int) -> Tensors:
    n, heads, state = shape.embedding, shape.ssm_heads, shape.ssm_state
    channels = shape.inner + 2 * shape.ssm_groups * state
    is_mtp = layer >= shape.layers
    yield _norm("attn_norm", n)
    yield _norm("post_attention_norm", n)
    if is_mtp or has_attention(shape, layer):
        yield from _qkv(shape, q_scale=2)  # query and its gate in one matrix
        yield from _head_norms(shape)
    else:
        yield _read("attn_qkv", n, channels)
        yield _read("attn_gate", n, shape.inner)
        yield Tensor("ssm_conv1d.weight", (shape.ssm_conv, channels), Init.CONVOLUTION)
        yield Tensor("ssm_dt.bias", (heads,), Init.ZERO)
        yield Tensor("ssm_a", (heads,), Init.DECAY)
        yield _read("ssm_beta", n, heads)
        yield _read("ssm_alpha", n, heads)
        yield _norm("ssm_norm", state)
        yield _write("ssm_out", shape.inner, n)
    if shape.arch == "qwen35moe":
        yield from _experts(shape)
        yield Tensor("ffn_gate_inp_shexp.weight", (n,), Init.ZERO)
        yield from _feed_forward(shape, "_shexp", shape.experts_shared * shape.expert_width)
    else:
        yield from _feed_forward(shape)
    if is_mtp:
        yield _read("nextn.eh_proj", 2 * n, n)
        yield _norm("nextn.enorm", n)
        yield _norm("nextn.hnorm", n)
        yield _norm("nextn.shared_head_norm", n)


def _mamba_layer(shape: Shape, layer: int) -> Tensors:
    n, inner, state, rank = shape.embedding, shape.inner, shape.ssm_state, shape.ssm_heads
    yield _norm("attn_norm", n)
    yield _read("ssm_in", n, 2 * inner)
    yield Tensor("ssm_conv1d.weight", (shape.ssm_conv, inner), Init.CONVOLUTION)
    yield Tensor("ssm_conv1d.bias", (inner,), Init.ZERO)
    yield _read("ssm_x", inner, rank + 2 * state)
    yield _read("ssm_dt", rank, inner)
    yield Tensor("ssm_dt.bias", (inner,), Init.ZERO)
    yield Tensor("ssm_a", (state, inner), Init.DECAY)
    yield Tensor("ssm_d", (inner,), Init.ONE)
    yield _write("ssm_out", inner, n)


def _mamba2_layer(shape: Shape, layer: int) -> Tensors:
    yield _norm("attn_norm", shape.embedding)
    yield from _mamba2_block(shape)


def _granitehybrid_layer(shape: Shape, layer: int) -> Tensors:
    yield _norm("attn_norm", shape.embedding)
    yield from _qkv(shape) if has_attention(shape, layer) else _mamba2_block(shape)
    yield _norm("ffn_norm", shape.embedding)
    yield from _feed_forward(shape)


def _nemotron_h_layer(shape: Shape, layer: int) -> Tensors:
    n, f = shape.embedding, shape.feed_forward
    kind = _nemotron_kind(shape, layer)
    yield _norm("attn_norm", n)
    if kind == "ssm":
        yield from _mamba2_block(shape)
    elif kind == "attention":
        yield from _qkv(shape)
    else:
        yield _read("ffn_up", n, f)
        yield _write("ffn_down", f, n)


def _rwkv7_layer(shape: Shape, layer: int) -> Tensors:
    n, rank = shape.embedding, shape.lora
    for name in ("attn_norm", "attn_norm_2", "time_mix_ln"):
        yield _norm(name, n)
        yield Tensor(f"{name}.bias", (n,), Init.ZERO)
    for letter in "wav":
        yield Tensor(f"time_mix_{letter}0.weight", (n,), Init.ZERO)
        yield _read(f"time_mix_{letter}1", n, rank)
        yield _read(f"time_mix_{letter}2", rank, n)
    yield _read("time_mix_g1", n, rank)
    yield _read("time_mix_g2", rank, n)
    yield Tensor("time_mix_lerp_fused.weight", (n, 1, 1, 6), Init.HALF)
    yield _norm("time_mix_k_k", n)
    yield Tensor("time_mix_k_a.weight", (n,), Init.HALF)
    yield Tensor("time_mix_r_k.weight", (n,), Init.ZERO)
    for name in ("key", "value", "receptance"):
        yield _read(f"time_mix_{name}", n, n)
    yield _write("time_mix_output", n, n)
    yield Tensor("channel_mix_lerp_k.weight", (n, 1, 1), Init.HALF)
    yield _read("channel_mix_key", n, shape.feed_forward)
    yield _write("channel_mix_value", shape.feed_forward, n)


def _lfm2_layer(shape: Shape, layer: int) -> Tensors:
    n = shape.embedding
    yield _norm("attn_norm", n)
    if has_attention(shape, layer):
        yield from _qkv(shape)
        yield from _head_norms(shape)
    else:
        yield Tensor("shortconv.conv.weight", (shape.ssm_conv, n), Init.CONVOLUTION)
        yield _read("shortconv.in_proj", n, 3 * n)
        yield _write("shortconv.out_proj", n, n)
    yield _norm("ffn_norm", n)
    yield from _feed_forward(shape)


def _falcon_h1_layer(shape: Shape, layer: int) -> Tensors:
    yield _norm("attn_norm", shape.embedding)
    yield from _mamba2_block(shape)
    yield from _qkv(shape)
    yield Tensor("ffn_norm", (shape.embedding,), Init.ONE)  # no ".weight" in this one
    yield from _feed_forward(shape)


def _deepseek2_layer(shape: Shape, layer: int) -> Tensors:
    n, heads, rank, plain = shape.embedding, shape.heads, shape.kv_lora, shape.head_dim
    q = heads * (plain + shape.rope_dim)
    yield _norm("attn_norm", n)
    if shape.q_lora:
        yield _read("attn_q_a", n, shape.q_lora)
        yield _norm("attn_q_a_norm", shape.q_lora)
        yield _read("attn_q_b", shape.q_lora, q)
    else:
        yield _read("attn_q", n, q)
    yield _read("attn_kv_a_mqa", n, rank + shape.rope_dim)
    yield _norm("attn_kv_a_norm", rank)
    yield _read("attn_k_b", plain, rank, heads)
    yield _read("attn_v_b", rank, plain, heads)
    yield _write("attn_output", heads * plain, n)
    yield _norm("ffn_norm", n)
    if layer < shape.dense_layers:
        yield from _feed_forward(shape)
        return
    yield from _experts(shape)
    if shape.expert_groups:
        yield _bias("exp_probs_b", shape.experts)
    if shape.experts_shared:
        yield from _feed_forward(shape, "_shexp", shape.expert_width * shape.experts_shared)


_LAYERS: Final[dict[str, Callable[[Shape, int], Tensors]]] = {
    "llama": _llama_layer,
    "gemma3": _gemma3_layer,
    "gpt-oss": _gpt_oss_layer,
    "qwen3moe": _qwen3moe_layer,
    "qwen35": _qwen35_layer,
    "qwen35moe": _qwen35_layer,
    "mamba": _mamba_layer,
    "mamba2": _mamba2_layer,
    "granitehybrid": _granitehybrid_layer,
    "nemotron_h": _nemotron_h_layer,
    "rwkv7": _rwkv7_layer,
    "lfm2": _lfm2_layer,
    "falcon-h1": _falcon_h1_layer,
    "deepseek2": _deepseek2_layer,
}
