"""Layers that the file does not count as they are cached."""

from __future__ import annotations

from dataclasses import replace

from arriero.memory.hparams.keys import MAX_LAYERS, Keys
from arriero.memory.hparams.model import Hparams


def with_layers(keys: Keys, h: Hparams) -> Hparams:
    """The layers as they are cached: shared, looped, or with a router's own."""
    rules = keys.rules
    if rules.kv_from_start is not None:
        h = replace(h, n_layer_kv=rules.kv_from_start)
    if rules.shared_kv:
        shared = keys.number("attention.shared_kv_layers", 0)
        h = replace(h, n_layer_kv=max(h.n_layer_all - shared, 0))
    h = _looped(keys, h) if rules.loops else h
    return _with_router(h) if rules.router_layer else h


def _looped(keys: Keys, h: Hparams) -> Hparams:
    """The trunk repeated: each pass through it has caches of its own."""
    loops, n = keys.number("num_loops", 1), h.n_layer
    if loops * n > MAX_LAYERS:
        raise keys.wrong("num_loops", f"makes more than {MAX_LAYERS} layers")
    if loops <= 1:
        return h
    return replace(
        h,
        n_layer_all=n * loops,
        n_head=h.n_head[:n] * loops,
        n_head_kv=h.n_head_kv[:n] * loops,
        n_ff=h.n_ff[:n] * loops,
        is_swa=h.is_swa[:n] * loops,
        is_recurrent=h.is_recurrent[:n] * loops,
    )


def _with_router(h: Hparams) -> Hparams:
    """The trunk and the router's layer behind it, counted as a NextN layer."""
    n = h.n_layer
    return replace(
        h,
        n_layer_all=n + 1,
        n_layer_nextn=1,
        nextn_cached=True,
        n_head=(*h.n_head[:n], 1),
        n_head_kv=(*h.n_head_kv[:n], 1),
        n_ff=(*h.n_ff[:n], 0),
        is_swa=(*h.is_swa[:n], False),
        is_recurrent=(*h.is_recurrent[:n], False),
    )
