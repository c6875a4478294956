"""A header's hyperparameters as llama.cpp reads them, per layer, forced values and defaults too."""

from __future__ import annotations

from typing import Final

from arriero.base.errors import ModelError
from arriero.gguf import Header
from arriero.memory.architectures import ARCHITECTURES, SEEN
from arriero.memory.hparams.indexer import with_indexer
from arriero.memory.hparams.keys import MAX_LAYERS, Keys
from arriero.memory.hparams.layers import with_layers
from arriero.memory.hparams.model import Hparams, UnknownArchitectureError
from arriero.memory.hparams.recurrent import with_recurrent
from arriero.memory.hparams.window import with_window

NEWEST: Final = 1 << 30
"""Stands for a build that is newer than every rule."""


def read_hparams(header: Header, build: int | None = None) -> Hparams:
    """Hyperparameters of a model as a build of llama.cpp takes them.

    Args:
        build: Null for the newest rules known. Where a rule changed between two builds that were
            seen, ``caches.is_doubtful`` says whether it matters.

    Raises:
        UnknownArchitectureError: Nothing is known about the architecture, or this build lacks it.
        ModelError: A key is missing or absurd, so that llama.cpp would refuse the file.
    """
    arch = header.metadata.get("general.architecture")
    if not isinstance(arch, str) or not arch:
        raise ModelError(f"{header.parts[0].name}: no general.architecture in the header")
    rules = ARCHITECTURES.get(arch)
    if rules is None:
        raise UnknownArchitectureError(
            f"unknown architecture {arch!r}: its caches cannot be sized",
            hint="use an engine that knows it: its dry run tells the sizes",
        )
    if build is not None and build < rules.since:
        raise UnknownArchitectureError(f"build {build} does not know architecture {arch!r}")
    keys = Keys(header, arch, rules, NEWEST if build is None else build)
    h = with_recurrent(keys, _trunk(keys))
    h = with_window(keys, with_indexer(keys, h))
    return with_layers(keys, h)


def lacks(header: Header, build: int | None) -> bool | None:
    """Whether a build does not know the model's architecture; null where nobody can say.

    False for the newest rules (null) of an architecture in the table, null for one that is not.
    """
    rules = ARCHITECTURES.get(str(header.metadata.get("general.architecture")))
    if rules is None:
        return None
    if build is None or not rules.since:
        return False
    if build < rules.since:
        return True
    # between the last build seen without it and the first seen with it
    return False if build >= min(seen for seen in SEEN if seen >= rules.since) else None


def _trunk(keys: Keys) -> Hparams:
    """What every model says of itself; all layers alike, without window or recurrent state."""
    blocks = keys.number("block_count")
    if not 0 < blocks <= MAX_LAYERS:
        raise keys.wrong("block_count", f"is {blocks}, not in 1..{MAX_LAYERS}")
    nextn = _nextn(keys, blocks)
    n_embd = keys.number("embedding_length")
    head = keys.per_layer("attention.head_count", blocks) or (0,) * blocks
    head_kv = keys.per_layer("attention.head_count_kv", blocks) or head
    n_ff = keys.per_layer("feed_forward_length", blocks) or (0,) * blocks
    key, value, value_swa = _head_sizes(keys, n_embd, head[0])
    return Hparams(
        arch=keys.arch,
        rules=keys.rules,
        n_layer_all=blocks,
        n_layer_nextn=nextn,
        n_embd=n_embd,
        n_embd_out=keys.number("embedding_length_out", 0) or n_embd,
        n_vocab=keys.vocabulary(),
        n_ctx_train=keys.number("context_length"),
        causal=bool(keys.header.metadata.get(f"{keys.arch}.attention.causal", True)),
        n_head=head,
        n_head_kv=head_kv,
        n_ff=n_ff,
        head_k=key,
        head_v=value,
        head_k_swa=keys.number("attention.key_length_swa", key),
        head_v_swa=value_swa,
        n_swa=0,
        is_swa=(False,) * blocks,
        is_mla=_is_mla(keys),
        is_recurrent=(False,) * blocks,
        nextn_cached=keys.build < keys.rules.nextn_filter_since,
    )


def _nextn(keys: Keys, blocks: int) -> int:
    if keys.build < keys.rules.nextn_since:
        return 0
    nextn = keys.number("nextn_predict_layers", 0)
    if nextn > blocks:
        raise keys.wrong("nextn_predict_layers", f"is {nextn} of {blocks} layers")
    if keys.arch == "deepseek4":
        # counted only if the tensors are there: a file may be converted without them
        probe = f"blk.{blocks - nextn}.nextn.eh_proj.weight"
        if not any(tensor.name == probe for tensor in keys.header.tensors):
            return 0
    return nextn


def _head_sizes(keys: Keys, n_embd: int, heads: int) -> tuple[int, int, int]:
    """Elements of one key and one value, and of a value in a layer with a sliding window."""
    per_head = n_embd // heads if heads else 0
    reads_length = heads > 0 or keys.arch == "plamo2"
    key = keys.number("attention.key_length", per_head) if reads_length else 0
    value = keys.number("attention.value_length", per_head) if reads_length else 0
    value_swa = keys.number("attention.value_length_swa", value)
    if keys.rules.latent_v:
        value = keys.number("attention.kv_lora_rank", value)
    return key, value, value_swa


def _is_mla(keys: Keys) -> bool:
    return (
        keys.rules.mla
        and keys.number("attention.key_length_mla", 0) > 0
        and keys.number("attention.value_length_mla", 0) > 0
    )
