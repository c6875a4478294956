"""The parameter structs of libllama and libmtmd, recognised by their default values."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from .refusal import NoAnswer


class Field(NamedTuple):
    """One member: its name, `struct` code and the default values it may have (None: any)."""

    name: str
    code: str
    defaults: tuple[float, ...] | None = (0,)


def _with(fields: tuple[Field, ...], after: str, *new: Field) -> tuple[Field, ...]:
    at = 1 + [f.name for f in fields].index(after)
    return fields[:at] + new + fields[at:]


def _without(fields: tuple[Field, ...], *names: str) -> tuple[Field, ...]:
    return tuple(f for f in fields if f.name not in names)


# Each struct as the history of its public declaration: the build is the first one sampled that
# had the change, not a rule by which a layout is chosen.
_MODEL_7769: Final = (
    Field("devices", "Q"),
    Field("tensor_buft_overrides", "Q"),
    Field("n_gpu_layers", "i", (-1, 999)),
    Field("split_mode", "i", (1,)),
    Field("main_gpu", "i"),
    Field("tensor_split", "Q"),
    Field("progress_callback", "Q"),
    Field("progress_callback_user_data", "Q"),
    Field("kv_overrides", "Q"),
    Field("vocab_only", "B"),
    Field("use_mmap", "B", (1,)),
    Field("use_direct_io", "B", (0, 1)),
    Field("use_mlock", "B"),
    Field("check_tensors", "B"),
    Field("use_extra_bufts", "B", (1,)),
    Field("no_host", "B"),
    Field("no_alloc", "B"),
)
_MODEL_10133: Final = _with(
    _without(_MODEL_7769, "use_mmap", "use_direct_io", "use_mlock"),
    "split_mode",
    Field("load_mode", "i", (-1, 0, 1, 2, 3)),
)
_MODEL_10335: Final = _with(_MODEL_10133, "no_alloc", Field("load_mtp", "B"))
_MODEL_10796: Final = _with(_MODEL_10335, "load_mode", Field("lazy_mode", "i", (-1, 0, 1, 2)))
MODEL_LAYOUTS: Final = {
    7769: _MODEL_7769,
    10133: _MODEL_10133,
    10335: _MODEL_10335,
    10796: _MODEL_10796,
}

_CONTEXT_7769: Final = (
    Field("n_ctx", "I", (512,)),
    Field("n_batch", "I", (2048,)),
    Field("n_ubatch", "I", (512,)),
    Field("n_seq_max", "I", (1,)),
    Field("n_threads", "i", (4,)),
    Field("n_threads_batch", "i", (4,)),
    Field("rope_scaling_type", "i", (-1,)),
    Field("pooling_type", "i", (-1,)),
    Field("attention_type", "i", (-1,)),
    Field("flash_attn_type", "i", (-1,)),
    Field("rope_freq_base", "f"),
    Field("rope_freq_scale", "f"),
    Field("yarn_ext_factor", "f", (-1,)),
    Field("yarn_attn_factor", "f", (-1, 1)),
    Field("yarn_beta_fast", "f", (-1, 32)),
    Field("yarn_beta_slow", "f", (-1, 1)),
    Field("yarn_orig_ctx", "I"),
    Field("defrag_thold", "f", (-1,)),
    Field("cb_eval", "Q"),
    Field("cb_eval_user_data", "Q"),
    Field("type_k", "i", (1,)),
    Field("type_v", "i", (1,)),
    Field("abort_callback", "Q"),
    Field("abort_callback_data", "Q"),
    Field("embeddings", "B"),
    Field("offload_kqv", "B", (1,)),
    Field("no_perf", "B", (0, 1)),
    Field("op_offload", "B", (1,)),
    Field("swa_full", "B", (1,)),
    Field("kv_unified", "B"),
    Field("samplers", "Q"),
    Field("n_samplers", "Q"),
)
_CONTEXT_9209: Final = _with(
    _with(_CONTEXT_7769, "n_seq_max", Field("n_rs_seq", "I")),
    "n_threads_batch",
    Field("ctx_type", "i"),
)
_CONTEXT_9733: Final = _with(
    _with(_CONTEXT_9209, "n_rs_seq", Field("n_outputs_max", "I")),
    "n_samplers",
    Field("ctx_other", "Q"),
)
_CONTEXT_10434: Final = _with(
    _CONTEXT_9733, "n_outputs_max", Field("n_outputs_max_per_seq", "I", (0, 1))
)
_CONTEXT_11548: Final = _with(_CONTEXT_10434, "type_v", Field("moe_cache_size", "Q"))
CONTEXT_LAYOUTS: Final = {
    7769: _CONTEXT_7769,
    9209: _CONTEXT_9209,
    9733: _CONTEXT_9733,
    10434: _CONTEXT_10434,
    11548: _CONTEXT_11548,
}

_PROJECTOR_10068: Final = (
    Field("use_gpu", "B", (1,)),
    Field("print_timings", "B", (1,)),
    Field("n_threads", "i", (4,)),
    Field("image_marker", "Q"),
    Field("media_marker", "Q", None),
    Field("flash_attn_type", "i", (-1,)),
    Field("warmup", "B", (1,)),
    Field("image_min_tokens", "i", (-1,)),
    Field("image_max_tokens", "i", (-1,)),
    Field("cb_eval", "Q"),
    Field("cb_eval_user_data", "Q"),
    Field("batch_max_tokens", "i", (1024,)),
    Field("progress_callback", "Q"),
    Field("progress_callback_user_data", "Q"),
)
PROJECTOR_LAYOUTS: Final = {
    10068: _PROJECTOR_10068,
    11434: _with(_PROJECTOR_10068, "use_gpu", Field("device", "Q")),
}


class Layout(NamedTuple):
    """Where the members are in this library, the struct's size and its default bytes."""

    members: Mapping[str, tuple[int, str]]
    defaults: bytes

    def filled(self, values: Mapping[str, float]) -> bytes:
        """The default struct with some members replaced. Members this library lacks: NoAnswer."""
        blob = bytearray(self.defaults)
        for name, value in values.items():
            if name not in self.members:
                raise NoAnswer(f"this engine has no parameter {name}")
            offset, code = self.members[name]
            try:
                struct.pack_into(code, blob, offset, value)
            except struct.error as error:
                raise NoAnswer(f"{name} cannot be {value}") from error
        return bytes(blob)


def _place(
    fields: Sequence[Field], blob: bytes, written: Sequence[bool] | None
) -> dict[str, tuple[int, str]] | None:
    members: dict[str, tuple[int, str]] = {}
    end = 0
    for name, code, defaults in fields:
        width = struct.calcsize(code)
        offset = -(-end // width) * width
        end = offset + width
        value = struct.unpack_from(code, blob, offset)[0]
        if defaults is not None and value not in defaults:
            return None
        if written is not None and not all(written[offset:end]):
            return None
        members[name] = (offset, code)
    beyond = written is not None and any(written[-(-end // 8) * 8 :])
    return None if beyond else members


def fit_layout(
    layouts: Mapping[int, Sequence[Field]], blob: bytes, written: Sequence[bool] | None
) -> Layout:
    """The one layout whose members hold their defaults in ``blob``.

    ``written`` says which bytes the library wrote, when that could be seen: every member must be
    written and nothing behind the last one, so that holes and size are part of the fingerprint.

    Raises:
        NoAnswer: No layout fits, or several that put a common member at different places.
    """
    fitting = [m for fields in layouts.values() if (m := _place(fields, blob, written))]
    if not fitting:
        raise NoAnswer("the layout of this engine's parameters is unknown")
    members = max(fitting, key=len)
    if any(members.get(name) != place for other in fitting for name, place in other.items()):
        raise NoAnswer("the layout of this engine's parameters is ambiguous")
    end = max(offset + struct.calcsize(code) for offset, code in members.values())
    return Layout(members, blob[: -(-end // 8) * 8])
