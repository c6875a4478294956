"""Speculative decoding: what drafts, how many tokens, in which context."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Final

from arriero.command import Command
from arriero.launch import placement
from arriero.launch.attention import cache_type, flash_attn
from arriero.launch.params import EngineParams

_DEFAULT_DRAFT: Final = 3
_ROLLING: Final = frozenset({"draft-mtp", "draft-eagle3", "draft-dflash", "draft-dspark"})
"""Kinds of speculation that need state to roll back to."""
_DRAFTING: Final = _ROLLING | {"draft-simple"}
_NGRAM_LENGTHS: Final = {
    "ngram-simple": ("--spec-ngram-simple-size-m", 48),
    "ngram-map-k": ("--spec-ngram-map-k-size-m", 48),
    "ngram-map-k4v": ("--spec-ngram-map-k4v-size-m", 48),
    "ngram-mod": ("--spec-ngram-mod-n-max", 64),
}


def draft_model(command: Command) -> str | None:
    """The file of the model that drafts, as typed."""
    return command.value("-md")


def draft_source(command: Command) -> str | None:
    """The file or the repository of the model that drafts, as typed."""
    return draft_model(command) or command.value("-hfd")


def speculation(command: Command) -> tuple[str, ...]:
    """Kinds of speculation. A draft model alone is one only where there is no flag for the kind:
    elsewhere it is loaded with its context, and nothing drafts (seen on four builds since 10068).
    """
    said = command.value("--spec-type") or ""
    kinds = tuple(kind for kind in re.split(r"[,\s]+", said) if kind and kind != "none")
    if not kinds and command.has("-md") and not command.flags.knows("--spec-type"):
        return ("draft-simple",)
    return kinds


def drafted(command: Command, kinds: Collection[str]) -> int:
    """The most tokens that a slot drafts at once."""
    lengths = [_NGRAM_LENGTHS[kind] for kind in kinds if kind in _NGRAM_LENGTHS]
    if _DRAFTING.intersection(kinds):
        lengths.append(("--spec-draft-n-max", _DEFAULT_DRAFT))
    said = ((command.number(flag), default) for flag, default in lengths)
    return max((default if n is None else n for n, default in said), default=0)


def rolls_back(kinds: Collection[str]) -> bool:
    """Whether rejected tokens are taken back from recurrent state: a copy for each of them."""
    return bool(_ROLLING.intersection(kinds))


def draft(command: Command, params: EngineParams, kinds: Collection[str]) -> EngineParams | None:
    """The context that drafts, of a model of its own or of this model's NextN layers.

    ``common_base_params_to_speculative`` (common/speculative.cpp).
    """
    own, mtp = draft_model(command), "draft-mtp" in kinds
    if own is None and not mtp:
        return None
    type_v = cache_type(command, "-ctvd")
    made = replace(
        params,
        n_rs_seq=0,
        n_outputs_max=params.n_seq_max,
        n_outputs_max_per_seq=1,
        type_k=cache_type(command, "-ctkd"),
        type_v=type_v,
        flash_attn=flash_attn(command, type_v),
        ctx_type="mtp" if mtp else "default",
    )
    if own is None:
        return made
    return replace(
        made,
        model=Path(own),
        n_gpu_layers=placement.layers(command, "-ngld"),
        devices=placement.devices(command, "-devd"),
        overrides=placement.overrides(command, "-otd", "-cmoed", "-ncmoed"),
        load_mtp=False,
    )
