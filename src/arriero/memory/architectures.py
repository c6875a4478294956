"""Which memory each architecture keeps between tokens, and which keys say how much.

The table restates llama.cpp's ``llama_model::create_memory`` and every ``load_arch_hparams`` in
``src/models/`` as data. Sources of builds 10068, 10091, 10435 and 11434 were read, builds 10068,
10092, 10434 and 11434 asked; where they differ, a rule says since which build it holds. An
architecture that is not here is not known, and nothing is guessed about it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from arriero.launch.builds import AFTER_10068 as AFTER_10068
from arriero.launch.builds import AFTER_10092 as AFTER_10092
from arriero.launch.builds import AFTER_10435 as AFTER_10435
from arriero.launch.builds import SEEN as SEEN


class Memory(StrEnum):
    """llama.cpp's memory objects. ``ATTENTION`` is plain or iswa, by the window."""

    NONE = "none"
    ATTENTION = "attention"
    DSA = "dsa"
    DSA_ISWA = "dsa_iswa"
    DSV4 = "dsv4"
    MSA = "msa"
    RECURRENT = "recurrent"
    HYBRID = "hybrid"
    HYBRID_IDX = "hybrid_idx"


class Layers(StrEnum):
    """Which layers have the sliding window."""

    PATTERN = "pattern"
    """By ``attention.sliding_window_pattern``: an array, or the n of "all but every n-th"."""
    ARRAY = "array"
    """The same, but the array must be there."""
    ATTENTION = "attention"
    """Every layer that is not recurrent."""
    ALL = "all"


@dataclass(frozen=True, kw_only=True)
class Window:
    """Where the sliding window and its layers come from."""

    layers: Layers = Layers.PATTERN
    period: int = 0
    """The n of the pattern where the file has none."""
    dense_first: bool = False
    """The full-attention layer is the first of each n, not the last."""
    tokens: int | None = None
    """The window where the file does not say; null where it must."""
    forced: int | None = None
    """The window whatever the file says."""
    optional: bool = False
    """Without ``attention.sliding_window``, or with 0, there is no window at all."""
    off_by_zero: bool = False
    """Only an explicit 0 turns it off."""
    only_with_layers: int | None = None
    """There is no window unless the model has so many layers."""
    array_since: int = AFTER_10435
    """Before, an array is ignored where a number may stand."""
    trunk_since: int = 0
    """Before, the window is laid out before NextN layers are told from the trunk."""


class Recurrent(StrEnum):
    """Which layers keep recurrent state."""

    ALL = "all"
    NO_KV_HEADS = "no_kv_heads"
    IDLE = "idle"
    """Neither KV heads nor a feed-forward; a layer with a feed-forward keeps nothing at all."""
    INTERVAL = "interval"
    """``attention.recurrent_layers``, else all but every ``full_attention_interval``-th."""


class State(StrEnum):
    """What one row of recurrent state is made of (src/llama-hparams.cpp: n_embd_r, n_embd_s)."""

    WKV = "wkv"
    SHORT_CONVOLUTION = "shortconv"
    KDA = "kda"
    LIGHTNING = "lightning"
    SSM = "ssm"
    SSM_WITHOUT_GROUPS = "ssm_without_groups"


class Filter(StrEnum):
    """Which layers' attention is cached, beside the rules that hold for all."""

    ALL = "all"
    NOT_RECURRENT = "not_recurrent"
    TRUNK = "trunk"
    """Not recurrent, and no NextN layer either: the other hybrids cache NextN attention."""
    IDLE = "idle"
    """Neither recurrent nor with a feed-forward."""


@dataclass(frozen=True, kw_only=True)
class Arch:
    """What one architecture does with memory."""

    memory: Memory = Memory.ATTENTION
    window: Window | None = None
    mla: bool = False
    """Reads ``attention.key_length_mla`` and ``value_length_mla``: K only, if both are there."""
    latent_v: bool = False
    """V is as wide as ``attention.kv_lora_rank`` says, whatever ``value_length`` does."""
    recurrent: Recurrent | None = None
    interval: int = 4
    state: State | None = None
    attention: Filter = Filter.ALL
    kv_from_start: int | None = None
    """Only so many layers from the start have a cache; the rest reuse the last of them."""
    shared_kv: bool = False
    """``attention.shared_kv_layers`` says how many layers at the end have none."""
    loops: bool = False
    """``num_loops`` runs through the layers, each with a cache of its own."""
    router_layer: bool = False
    """One more layer of one head that the file does not count."""
    encoder: bool = False
    """Outputs are reserved for the whole batch."""
    no_flash_attention: bool = False
    rollback_since: int | None = None
    """Keeps planes of state to roll back to (``llm_arch_supports_rs_rollback``)."""
    nextn_since: int = AFTER_10435
    """Counts ``nextn_predict_layers``."""
    nextn_filter_since: int = AFTER_10435
    """Keeps NextN layers out of the main KV cache, and all others out of a draft's."""
    draft_head: bool = False
    """A hybrid whose draft context has the NextN layers alone; others have all of it again."""
    indexer_since: int = 0
    """Keeps a cache for its indexer; before, a plain one is all."""
    since: int = 0
    """Is known at all."""
    pooled_rows: int = 1
    """Rows of an indexer with pooled keys, per token."""


_PLAIN: Final = (
    "llama llama-embed deci falcon gpt2 gptneox mpt baichuan starcoder refact bloom stablelm qwen "
    "qwen2 qwen2moe qwen2vl qwen3 qwen3moe qwen3vl qwen3vlmoe phi2 phi3 phimoe plamo "
    "codeshell orion internlm2 minicpm minicpm3 gemma starcoder2 xverse command-r dbrx olmo olmoe "
    "openelm arctic deepseek deepseek2-ocr chatglm bitnet jais jais2 nemotron exaone granite "
    "granitemoe chameleon bailingmoe dots1 arcee ernie4_5 ernie4_5-moe paddleocr hunyuan-moe "
    "hunyuan-dense hunyuan_vl smollm3 seed_oss grovemoe apertus minimax-m2 cogvlm pangu-embedded "
    "mistral3 maincoder talkie plm"
)
_NONE: Final = (
    "bert jina-bert-v2 jina-bert-v3 nomic-bert nomic-bert-moe neo-bert eurobert wavtokenizer-dec "
    "modern-bert gemma-embedding dream llada llada-moe rnd1"
)

_HYBRID: Final = Arch(
    memory=Memory.HYBRID,
    recurrent=Recurrent.NO_KV_HEADS,
    state=State.SSM,
    attention=Filter.NOT_RECURRENT,
)
_NEMOTRON_H: Final = replace(
    _HYBRID,
    recurrent=Recurrent.IDLE,
    attention=Filter.IDLE,
    rollback_since=AFTER_10092,
    nextn_since=AFTER_10092,
)
_LFM2: Final = replace(_HYBRID, state=State.SHORT_CONVOLUTION, rollback_since=AFTER_10435)
_LINEAR: Final = replace(
    _HYBRID, recurrent=Recurrent.INTERVAL, attention=Filter.TRUNK, nextn_since=0
)
_QWEN_NEXT: Final = replace(_LINEAR, draft_head=True)
_KDA: Final = replace(_HYBRID, state=State.KDA, mla=True)
_KDA_NEW: Final = replace(_KDA, rollback_since=0, since=AFTER_10435)
_RECURRENT: Final = Arch(memory=Memory.RECURRENT, recurrent=Recurrent.ALL, state=State.WKV)
_NEXTN: Final = Arch(nextn_since=0)
_INDEXED: Final = Arch(memory=Memory.DSA, mla=True, nextn_since=0, nextn_filter_since=AFTER_10092)
_OPTIONAL: Final = Window(optional=True, period=4)

ARCHITECTURES: Final[dict[str, Arch]] = {
    **dict.fromkeys(_PLAIN.split(), Arch()),
    **dict.fromkeys(_NONE.split(), Arch(memory=Memory.NONE)),
    **dict.fromkeys(("qwen3tts", "pockettts"), Arch(since=AFTER_10092)),
    "clef": Arch(memory=Memory.NONE, since=AFTER_10435),
    "grok": Arch(no_flash_attention=True),
    "hrm_text": Arch(since=AFTER_10435),
    "t5": Arch(encoder=True),
    "t5encoder": Arch(encoder=True),
    "eagle3": Arch(encoder=True),
    "bailingmoe2": _NEXTN,
    "glm4": _NEXTN,
    "glm4moe": _NEXTN,
    "hy_v3": Arch(nextn_since=0, nextn_filter_since=0),
    "deepseek2": Arch(mla=True, nextn_since=0),
    "mistral4": Arch(mla=True, nextn_since=0),
    "nanbeige": Arch(loops=True, since=AFTER_10092),
    "graniteswitch": Arch(router_layer=True, since=AFTER_10092),
    # a window by a key of the file
    "gemma3": Arch(window=replace(_OPTIONAL, period=6)),
    "olmo2": Arch(window=_OPTIONAL),
    "plamo3": Arch(window=replace(_OPTIONAL, period=8)),
    "afmoe": Arch(window=_OPTIONAL),
    "laguna": Arch(window=replace(_OPTIONAL, dense_first=True), since=AFTER_10068),
    "mellum": Arch(window=replace(_OPTIONAL, array_since=0)),
    "smallthinker": Arch(window=replace(_OPTIONAL, forced=4096, dense_first=True)),
    "exaone4": Arch(
        window=Window(period=4, tokens=4096, only_with_layers=64, trunk_since=AFTER_10092),
        nextn_since=0,
    ),
    "llama4": Arch(window=Window(period=4, forced=8192, off_by_zero=True)),
    # a window always
    "gemma2": Arch(window=Window(period=2, tokens=4096)),
    "gemma3n": Arch(window=Window(period=5), kv_from_start=20),
    "gemma4": Arch(window=Window(layers=Layers.ARRAY), shared_kv=True),
    "cohere2": Arch(window=Window(period=4)),
    "cohere2moe": Arch(window=Window(period=4, dense_first=True, array_since=0), nextn_since=0),
    "exaone-moe": Arch(window=Window(period=4, trunk_since=AFTER_10435), nextn_since=0),
    "gpt-oss": Arch(window=Window(period=2)),
    "muse-glimmer": Arch(window=Window(period=4, array_since=0), since=AFTER_10092),
    "mimo2": Arch(
        window=Window(layers=Layers.ARRAY), nextn_since=0, nextn_filter_since=AFTER_10092
    ),
    "step35": Arch(window=Window(layers=Layers.ARRAY), nextn_since=0, nextn_filter_since=0),
    "granite_swa": Arch(window=Window(layers=Layers.ARRAY), since=AFTER_10435),
    "spark2_5": Arch(window=Window(layers=Layers.ARRAY), since=AFTER_10435),
    "maple": Arch(window=Window(layers=Layers.ARRAY), since=AFTER_10435),
    # a draft of its target: views into the target's cache
    "gemma4-assistant": Arch(memory=Memory.NONE),
    "dflash": Arch(window=Window(layers=Layers.ARRAY, optional=True), encoder=True),
    # indexed and compressed attention
    "deepseek32": _INDEXED,
    "glm-dsa": replace(_INDEXED, indexer_since=AFTER_10092),
    "hy_v4": Arch(memory=Memory.DSA, mla=True, since=AFTER_10435),
    "dots3note": Arch(
        memory=Memory.DSA_ISWA, mla=True, window=Window(layers=Layers.ARRAY), since=AFTER_10435
    ),
    "deepseek4": Arch(
        memory=Memory.DSV4,
        window=Window(layers=Layers.ALL),
        rollback_since=AFTER_10092,
        nextn_since=0,
    ),
    "minimax-m3": Arch(memory=Memory.MSA, since=AFTER_10092),
    # recurrent
    "mamba": replace(_RECURRENT, state=State.SSM_WITHOUT_GROUPS),
    "mamba2": replace(_RECURRENT, state=State.SSM),
    **dict.fromkeys(("rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7"), _RECURRENT),
    # hybrids
    "jamba": replace(_HYBRID, state=State.SSM_WITHOUT_GROUPS),
    "plamo2": _HYBRID,
    "granitehybrid": _HYBRID,
    "falcon-h1": replace(_HYBRID, recurrent=Recurrent.ALL, attention=Filter.ALL),
    "nemotron_h": _NEMOTRON_H,
    "nemotron_h_moe": replace(_NEMOTRON_H, draft_head=True),
    "lfm2": replace(_LFM2, window=Window(optional=True, layers=Layers.ATTENTION)),
    "lfm2moe": _LFM2,
    "qwen3next": replace(_QWEN_NEXT, nextn_since=AFTER_10092),
    "qwen35": replace(_QWEN_NEXT, rollback_since=0),
    "qwen35moe": replace(_QWEN_NEXT, rollback_since=0),
    "qwen4exp": replace(
        _QWEN_NEXT, memory=Memory.HYBRID_IDX, rollback_since=0, pooled_rows=2, since=AFTER_10435
    ),
    "minimax-01": replace(_LINEAR, interval=8, state=State.LIGHTNING, since=AFTER_10435),
    "kimi-linear": _KDA,
    "kimi-k3": replace(_KDA_NEW, latent_v=True),
    "bailingmoe3": replace(_KDA_NEW, draft_head=True),
    "glm5-next": replace(
        _KDA_NEW,
        memory=Memory.HYBRID_IDX,
        attention=Filter.TRUNK,
        draft_head=True,
        latent_v=True,
        pooled_rows=3,
    ),
}
