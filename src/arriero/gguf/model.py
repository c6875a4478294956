"""The kind of cache that a model needs, and for which layers, according to its header.

The tables are those of llama.cpp's ``llama_model::create_memory`` and of each architecture's
``load_arch_hparams``, builds 10068 to 11434.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from arriero.base import limits
from arriero.base.errors import ModelError
from arriero.base.words import MemoryClass as MemoryClass
from arriero.gguf.header import Header, LazyArray


@dataclass(frozen=True, kw_only=True)
class Model:
    """A model as its header describes it. What the header does not say is None."""

    arch: str
    name: str | None
    memory_class: MemoryClass
    n_layer: int | None
    """Number of layers without NextN (MTP) layers, as llama.cpp counts them."""
    n_recurrent_layer: int | None
    n_ctx_train: int | None
    n_vocab: int | None
    file_bytes: int


def describe(header: Header) -> Model:
    """Describe the model by its header.

    Raises:
        ModelError: The header names no architecture, or its name is invalid.
    """
    arch = header.metadata.get("general.architecture")
    if not isinstance(arch, str) or not arch:
        raise ModelError(
            f"{header.parts[0].name}: the header has no general.architecture",
            hint="give a model; this may be a vocabulary or an adapter",
        )
    if len(arch) > limits.ARCHITECTURE or not arch.isprintable():
        raise ModelError(f"{header.parts[0].name}: general.architecture is not a name")
    name = header.metadata.get("general.name")
    blocks = _integer(header, f"{arch}.block_count")
    layers = None
    if blocks is not None and 0 <= blocks <= limits.LAYERS:
        layers = max(blocks - (_integer(header, f"{arch}.nextn_predict_layers") or 0), 0)
    memory_class = memory_class_of(arch)
    return Model(
        arch=arch,
        name=_shown(name) if isinstance(name, str) else None,
        memory_class=memory_class,
        n_layer=layers,
        n_recurrent_layer=_recurrent_layers(header, arch, memory_class, layers),
        n_ctx_train=_integer(header, f"{arch}.context_length"),
        n_vocab=_vocabulary(header, arch),
        file_bytes=header.file_bytes,
    )


def _shown(name: str) -> str:
    """A name, shortened for display: a hostile one must not fill a report."""
    return name if len(name) <= limits.MODEL_NAME else f"{name[: limits.MODEL_NAME]}…"


def memory_class_of(arch: str) -> MemoryClass:
    """The memory class of an architecture by llama.cpp's name for it."""
    return _CLASSES.get(arch, MemoryClass.UNKNOWN)


def _integer(header: Header, key: str) -> int | None:
    value = header.metadata.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _vocabulary(header: Header, arch: str) -> int | None:
    tokens = header.metadata.get("tokenizer.ggml.tokens")
    if isinstance(tokens, LazyArray):
        return tokens.count
    return _integer(header, f"{arch}.vocab_size")


# --- recurrent layers ---------------------------------------------------------------------------


def _recurrent_layers(
    header: Header, arch: str, memory_class: MemoryClass, layers: int | None
) -> int | None:
    if memory_class in (MemoryClass.ATTENTION, MemoryClass.NONE):
        return 0
    if memory_class is MemoryClass.UNKNOWN or layers is None:
        return None
    if memory_class is MemoryClass.RECURRENT:
        return layers
    return _HYBRIDS[arch](header, arch, layers)


def _per_layer(header: Header, key: str, layers: int) -> list[int] | None:
    """A key that is one number for all layers or an array of one for each."""
    value = header.metadata.get(key)
    if isinstance(value, tuple) and len(value) >= layers:
        return [int(v) for v in value[:layers] if isinstance(v, int)]
    if isinstance(value, int):
        return [int(value)] * layers
    return None


def _without_kv_heads(header: Header, arch: str, layers: int) -> int | None:
    heads = _per_layer(header, f"{arch}.attention.head_count_kv", layers)
    heads = heads or _per_layer(header, f"{arch}.attention.head_count", layers)
    return heads.count(0) if heads is not None else None


def _without_anything(header: Header, arch: str, layers: int) -> int | None:
    """nemotron_h: neither KV heads nor a feed-forward."""
    heads = _per_layer(header, f"{arch}.attention.head_count_kv", layers)
    wide = _per_layer(header, f"{arch}.feed_forward_length", layers)
    if heads is None or wide is None:
        return None
    return sum(h == f == 0 for h, f in zip(heads, wide, strict=False))


def _interval(default: int) -> Callable[[Header, str, int], int | None]:
    """A list of recurrent layers, else all but every n-th."""

    def count(header: Header, arch: str, layers: int) -> int | None:
        listed = _per_layer(header, f"{arch}.attention.recurrent_layers", layers)
        if listed is not None:
            return sum(map(bool, listed))
        interval = _integer(header, f"{arch}.full_attention_interval") or default
        return layers - layers // interval

    return count


def _every_layer(header: Header, arch: str, layers: int) -> int | None:
    return layers


_HYBRIDS: Final[dict[str, Callable[[Header, str, int], int | None]]] = {
    "falcon-h1": _every_layer,
    **dict.fromkeys(("nemotron_h", "nemotron_h_moe"), _without_anything),
    **dict.fromkeys(("qwen3next", "qwen35", "qwen35moe", "qwen4exp"), _interval(4)),
    "minimax-01": _interval(8),
    **dict.fromkeys(
        (
            "jamba",
            "plamo2",
            "granitehybrid",
            "lfm2",
            "lfm2moe",
            "kimi-linear",
            "kimi-k3",
            "bailingmoe3",
            "glm5-next",
        ),
        _without_kv_heads,
    ),
}

# --- memory classes -----------------------------------------------------------------------------

_RECURRENT: Final = "mamba mamba2 rwkv6 rwkv6qwen2 rwkv7 arwkv7"
_NONE: Final = (
    "bert jina-bert-v2 jina-bert-v3 nomic-bert nomic-bert-moe neo-bert eurobert wavtokenizer-dec "
    "modern-bert gemma-embedding dream llada llada-moe rnd1 clef"
)
_ATTENTION: Final = (
    # one plain cache
    "llama deci falcon grok gpt2 gptneox mpt baichuan starcoder refact bloom stablelm qwen qwen2 "
    "qwen2moe qwen2vl qwen3 qwen3moe qwen3vl qwen3vlmoe phi2 phi3 phimoe plamo codeshell orion "
    "internlm2 minicpm minicpm3 gemma starcoder2 xverse command-r dbrx olmo olmoe openelm arctic "
    "deepseek deepseek2 deepseek2-ocr mistral4 chatglm glm4 glm4moe bitnet t5 t5encoder jais jais2 "
    "nemotron exaone granite granitemoe chameleon bailingmoe bailingmoe2 dots1 arcee ernie4_5 "
    "ernie4_5-moe hunyuan-moe hunyuan-dense hunyuan_vl hy_v3 smollm3 seed_oss grovemoe apertus "
    "hrm_text minimax-m2 cogvlm pangu-embedded mistral3 paddleocr llama-embed maincoder talkie "
    "nanbeige qwen3tts pockettts plm graniteswitch eagle3 dflash "
    # a sliding-window cache beside it, by a key of the file
    "gemma3 olmo2 plamo3 afmoe laguna mellum smallthinker exaone4 llama4 "
    # or always
    "gemma2 gemma3n gemma4 gemma4-assistant cohere2 cohere2moe exaone-moe gpt-oss mimo2 step35 "
    "granite_swa muse-glimmer spark2_5 maple "
    # indexed or compressed
    "deepseek32 glm-dsa hy_v4 dots3note deepseek4 minimax-m3"
)
_CLASSES: Final = {
    **dict.fromkeys(_ATTENTION.split(), MemoryClass.ATTENTION),
    **dict.fromkeys(_RECURRENT.split(), MemoryClass.RECURRENT),
    **dict.fromkeys(_HYBRIDS, MemoryClass.HYBRID),
    **dict.fromkeys(_NONE.split(), MemoryClass.NONE),
}
