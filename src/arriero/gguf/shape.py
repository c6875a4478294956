"""The dimensions of a model to write."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final, Literal

from arriero.base.errors import UsageError

TensorTypeName = Literal["f32", "f16", "bf16", "q8_0", "q4_0", "q4_K_M", "mxfp4"]
"""One type for all matrices, or a mix as llama.cpp's ``llama-quantize`` makes it.

``q4_K_M`` has matrices of q4_K and some of q6_K; ``mxfp4`` has experts of mxfp4 and q8_0 elsewhere.
Mixes are written without weights only.
"""

ARCHITECTURES: Final = (
    "llama",
    "gemma3",
    "gpt-oss",
    "qwen3moe",
    "qwen35",
    "qwen35moe",
    "mamba",
    "mamba2",
    "granitehybrid",
    "nemotron_h",
    "rwkv7",
    "lfm2",
    "falcon-h1",
    "deepseek2",
)
"""llama.cpp's names of the architectures that can be written."""

MIXES: Final = {"q4_K_M", "mxfp4"}
_ZERO_ALLOWED: Final = {
    *("window", "ssm_inner", "mtp", "q_lora"),
    *("experts_shared", "expert_feed_forward", "expert_groups", "dense_layers"),
}
_MAX_DIMENSION: Final = 1 << 24
_MIN_VOCAB: Final = 259


@dataclass(frozen=True, kw_only=True)
class Shape:
    """One model, by llama.cpp's own terms. Fields an architecture does not have are ignored.

    The defaults are a tiny model that every architecture accepts; change what matters with
    ``dataclasses.replace`` or start from :mod:`arriero.gguf.presets`.

    Raises:
        UsageError: A dimension is out of range or the architecture cannot have it.
    """

    arch: str
    name: str = "arriero"
    tensor_type: TensorTypeName = "f16"
    """Type of the matrices. Norms, biases and convolutions are always f32."""
    tied: bool = False
    """The output matrix is the token embedding (not possible with rwkv7)."""

    layers: int = 4
    embedding: int = 128
    heads: int = 4
    heads_kv: int = 2
    head_dim: int = 32
    feed_forward: int = 128
    vocab: int = 384
    """Tokens: 256 byte tokens, 3 control tokens, then unused ones."""
    context_train: int = 32768

    attention_every: int = 4
    """Hybrid: every n-th layer has attention. gemma3, gpt-oss: every n-th has full attention."""
    window: int = 512
    """Sliding window of the other layers of gemma3 and gpt-oss; 0 gives gemma3 full attention."""

    ssm_state: int = 32
    ssm_inner: int = 0
    """0 picks ``ssm_heads * ssm_state`` (qwen35*) or twice the embedding (all others)."""
    ssm_conv: int = 4
    """Taps of the convolution; lfm2's short convolution too."""
    ssm_groups: int = 2
    """Groups of the state; qwen35*'s key heads."""
    ssm_heads: int = 8
    """The ``ssm.time_step_rank`` of the file; qwen35*'s value heads."""
    lora: int = 16
    """rwkv7: rank of its low-rank projections."""

    q_lora: int = 64
    """deepseek2: rank of the query's projection; 0 in its lite models of 26 or 27 layers."""
    kv_lora: int = 64
    rope_dim: int = 16
    """deepseek2: rotated part of a head; ``head_dim`` is the part that is not rotated."""
    experts: int = 4
    experts_used: int = 2
    experts_shared: int = 1
    """deepseek2, qwen35moe: experts that every token uses."""
    expert_feed_forward: int = 0
    """Width of one expert; 0 takes ``feed_forward``."""
    expert_groups: int = 0
    """deepseek2: groups that experts are chosen by, half of them per token."""
    dense_layers: int = 1
    """deepseek2: layers from the start that have no experts."""

    mtp: int = 0
    """qwen35*: NextN layers after the trunk, used only with ``--spec-type draft-mtp``."""

    @property
    def inner(self) -> int:
        """``ssm.inner_size``: channels of the recurrent state."""
        if self.ssm_inner:
            return self.ssm_inner
        return self.ssm_heads * self.ssm_state if self._delta else 2 * self.embedding

    @property
    def expert_width(self) -> int:
        """``expert_feed_forward_length``: hidden channels of one expert."""
        return self.expert_feed_forward or self.feed_forward

    @property
    def _delta(self) -> bool:
        return self.arch in {"qwen35", "qwen35moe"}

    def __post_init__(self) -> None:
        if self.arch not in ARCHITECTURES:
            raise UsageError(
                f"cannot write a model of architecture {self.arch!r}",
                hint="known: " + ", ".join(ARCHITECTURES),
            )
        for field in fields(self):
            value: Any = getattr(self, field.name)
            if isinstance(value, int) and not isinstance(value, bool):
                low = 0 if field.name in _ZERO_ALLOWED else 1
                if not low <= value <= _MAX_DIMENSION:
                    raise UsageError(f"{field.name} must be {low} to {_MAX_DIMENSION}, not {value}")
        for wrong, why in self._conflicts():
            if wrong:
                raise UsageError(f"{self.arch} cannot have this shape: {why}")

    def _conflicts(self) -> list[tuple[bool, str]]:
        recurrent = {"qwen35", "qwen35moe", "mamba2", "granitehybrid", "nemotron_h", "falcon-h1"}
        return [
            (self.vocab < _MIN_VOCAB, f"vocab {self.vocab} is below {_MIN_VOCAB} (every byte)"),
            (self.layers + self.mtp > 512, "llama.cpp takes at most 512 layers"),
            (self.embedding % 32 != 0, f"embedding {self.embedding} is not a multiple of 32"),
            (self.heads % self.heads_kv != 0, "heads is not a multiple of heads_kv"),
            (self.head_dim % 2 != 0, "head_dim is odd"),
            (self.mtp > 0 and not self._delta, "mtp is written for qwen35 and qwen35moe only"),
            (self.tied and self.arch in {"rwkv7", "gpt-oss"}, "its output matrix cannot be tied"),
            (self.window == 0 and self.arch == "gpt-oss", "it has a window"),
            (self.ssm_conv < 2, "ssm_conv is below 2"),
            (
                self.arch in recurrent and self.inner % self.ssm_groups != 0,
                f"inner size {self.inner} is not a multiple of ssm_groups",
            ),
            (
                self.arch in recurrent and self.inner % self.ssm_heads != 0,
                f"inner size {self.inner} is not a multiple of ssm_heads",
            ),
            (
                self._delta and self.inner != self.ssm_heads * self.ssm_state,
                "ssm_inner is not ssm_heads * ssm_state",
            ),
            (
                self._delta and self.ssm_heads % self.ssm_groups != 0,
                "ssm_heads is not a multiple of ssm_groups",
            ),
            (
                self.arch in {"mamba", "granitehybrid"} and self.inner != 2 * self.embedding,
                "ssm_inner is not twice the embedding",
            ),
            (
                self.arch == "lfm2" and self.heads * self.head_dim != self.embedding,
                "heads * head_dim is not the embedding",
            ),
            (
                self.arch == "rwkv7" and self.embedding % self.head_dim != 0,
                "embedding is not a multiple of head_dim",
            ),
            (self.experts_used > self.experts, "experts_used is above experts"),
            (
                self.arch == "deepseek2" and self.q_lora == 0 and self.layers not in (26, 27),
                "llama.cpp takes q_lora = 0 with 26 or 27 layers only",
            ),
            (
                self.expert_groups > 0 and self.experts % self.expert_groups != 0,
                "experts is not a multiple of expert_groups",
            ),
        ]
