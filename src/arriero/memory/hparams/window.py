"""Which layers see only a sliding window, and how many tokens it has."""

from __future__ import annotations

from dataclasses import replace

from arriero.gguf import LazyArray
from arriero.memory.architectures import AFTER_10092, Layers, Window
from arriero.memory.hparams.keys import Keys
from arriero.memory.hparams.model import Flags, Hparams


def with_window(keys: Keys, h: Hparams) -> Hparams:
    """The sliding window, and the layers that have it."""
    window = keys.rules.window
    mixed = keys.arch == "dflash" and keys.build >= AFTER_10092
    if mixed and keys.number("hyper_connection.count", 0) > 0:
        window, h = Window(layers=Layers.ALL), replace(h, nextn_cached=True)
    if window is None:
        return h
    layers = h.n_layer_all if keys.build < window.trunk_since else h.n_layer
    tokens = _window(keys, window, layers)
    if tokens is None:
        return h
    return replace(h, n_swa=tokens, is_swa=_windowed(keys, window, h, layers))


def _window(keys: Keys, window: Window, layers: int) -> int | None:
    if window.only_with_layers not in (None, layers):
        return None
    needed = not window.optional and window.tokens is None and window.forced is None
    said = keys.number("attention.sliding_window", None if needed else -1)
    if (window.optional and said <= 0) or (window.off_by_zero and said == 0):
        return None
    if window.forced is not None:
        return window.forced
    if said < 0:
        return window.tokens
    return said


def _windowed(keys: Keys, window: Window, h: Hparams, layers: int) -> Flags:
    key = "attention.sliding_window_pattern"
    match window.layers:
        case Layers.ALL:
            return (True,) * h.n_layer_all
        case Layers.ATTENTION:
            return tuple(
                il < h.n_layer and not recurrent for il, recurrent in enumerate(h.is_recurrent)
            )
        case Layers.ARRAY:
            return keys.flags(key, h.n_layer_all)
    said = keys.header.metadata.get(f"{keys.arch}.{key}")
    if isinstance(said, tuple | LazyArray) and keys.build >= window.array_since:
        return keys.flags(key, h.n_layer_all)
    n = window.period if isinstance(said, tuple | LazyArray) else keys.number(key, window.period)
    dense = 0 if window.dense_first else n - 1
    return tuple(il < layers and (n == 0 or il % n != dense) for il in range(h.n_layer_all))
