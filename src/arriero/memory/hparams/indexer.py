"""The keys of indexed and compressed attention, and of an n-gram embedding."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from arriero.memory.architectures import Memory
from arriero.memory.hparams.keys import MAX_LAYERS, Keys
from arriero.memory.hparams.model import Counts, Flags, Hparams

_GLM_LONG_CONTEXT: Final = 1 << 20
"""glm-dsa files from this training context on have fewer indexers than layers (GLM 5.2)."""
_GLM_INDEXERS: Final = (True, True, *(il % 4 == 0 for il in range(76)))


def with_indexer(keys: Keys, h: Hparams) -> Hparams:
    """Keys of indexed and compressed attention, and qwen4exp's n-gram embedding."""
    if keys.build < keys.rules.indexer_since:
        return _without(h)
    match keys.arch:
        case "deepseek32":
            pass
        case "minimax-m3":
            h = replace(h, n_layer_dense_lead=keys.number("leading_dense_block_count", 0))
        case "hy_v4" if keys.number("attention.indexer.top_k", 0) == 0:
            return replace(_without(h), nextn_cached=True)
        case "hy_v4":
            full = _types(keys, h) or (False,) * h.n_layer_all
            h = replace(h, is_indexer_full=full)
        case "glm-dsa":
            h = replace(h, is_indexer_full=_types(keys, h) or _glm_indexers(h))
        case "glm5-next":
            kpool = keys.number("attention.indexer.kpool")
            full = _types(keys, h) or (True,) * h.n_layer_all
            h = replace(h, is_indexer_full=full, kpool=kpool)
        case "dots3note":
            types = keys.flags("attention.indexer.types", h.n_layer_all)
            h = replace(h, is_indexer_full=types)
        case "deepseek4":
            h = replace(h, compress_ratios=_ratios(keys, h))
        case "qwen4exp":
            h = _with_ngrams(keys, h)
        case _:
            return h
    return replace(h, indexer_head=keys.number("attention.indexer.key_length"))


def _without(h: Hparams) -> Hparams:
    return replace(h, rules=replace(h.rules, memory=Memory.ATTENTION))


def _glm_indexers(h: Hparams) -> Flags:
    """The layers with an indexer of their own, where the file does not list them."""
    if h.n_ctx_train < _GLM_LONG_CONTEXT:
        return (True,) * h.n_layer_all
    return (*_GLM_INDEXERS, *(False,) * MAX_LAYERS)[: h.n_layer_all]


def _ratios(keys: Keys, h: Hparams) -> Counts:
    ratios = keys.integers("attention.compress_ratios")
    if ratios is None or len(ratios) < h.n_layer_all:
        raise keys.wrong("attention.compress_ratios", "is shorter than block_count")
    return ratios[: h.n_layer_all]


def _with_ngrams(keys: Keys, h: Hparams) -> Hparams:
    ratios = keys.per_layer("attention.compress_ratios", h.n_layer_all) or ()
    layers = keys.integers("ple.layers") or ()
    state = 0
    if layers and (keys.number("ple.ngram_size") - 1) * keys.number("ple.heads_per_ngram"):
        rows = max(keys.number("ple.conv_kernel") - 1, 0) * keys.number("ple.ngram_size")
        state = rows * keys.number("hyper_connection.count") * h.n_embd
    return replace(
        h,
        kpool=max(ratios, default=0),
        ple_state=state,
        is_ple=tuple(il in layers for il in range(h.n_layer_all)),
    )


def _types(keys: Keys, h: Hparams) -> Flags | None:
    types = keys.per_layer("attention.indexer.types", h.n_layer)
    if types is None:
        return None
    return (*map(bool, types), *(False,) * h.n_layer_nextn)
