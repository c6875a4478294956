"""The inner half of the dry run: a program of its own, run by path, standard library only.

It loads one engine's ``libllama.so``, builds models and contexts with ``no_alloc`` and asks the
library how much each buffer type would hold. It shares nothing with the process that started it,
so an abort, a hang or a wild read here costs one child. Request: JSON in ``argv[1]``. Answers: one
JSON object per line on standard output, each with the index of its request and either ``answer``
or ``reason``; they are written as they are known, so what came before a crash is not lost.

Nothing is assumed from a build number. The parameter structs are recognised by the default values
the library itself fills in (`fit_layout`), the buffer structs by values put there by the library,
and every answer is checked against what the context says about itself (`_contradiction`).
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import re
import struct
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple


class NoAnswer(Exception):  # noqa: N818 - an answer in itself, not a defect
    """Why a question has no answer, in one line."""


# --- Parameter structs ------------------------------------------------------------------------


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

_CANARY: Final = 512
"""Bytes offered to a default-params function; the largest struct known is 176."""


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


# --- The library ------------------------------------------------------------------------------

_ALLOC_BUFFER: Final = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_CLEAR: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint8)
_LOG: Final = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
_LOG_ERROR: Final = 4
_LINE_MAX: Final = 300
_LINES_MAX: Final = 1000
_SIZE_LINES_MAX: Final = 100
"""An answer is one line of at most 64 KiB, which is what Arriero keeps of a line."""
_STUB_BYTES: Final = 4160
"""What a stand-in buffer really holds: odd enough to be found by value in its struct."""


class _Map(ctypes.Structure):
    """libstdc++'s ``std::map``: comparator, then the red-black tree's header and count."""

    _fields_ = (
        ("compare", ctypes.c_uint64),
        ("colour", ctypes.c_uint64),
        ("root", ctypes.c_uint64),
        ("leftmost", ctypes.c_uint64),
        ("rightmost", ctypes.c_uint64),
        ("count", ctypes.c_uint64),
    )


class _Usage(ctypes.Structure):
    """What ``mtmd_get_memory_usage`` returns: a map, in newer builds followed by more."""

    _fields_ = (("map", _Map), ("more", ctypes.c_uint64 * 26))


def _word(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value


def _point(address: int, function: Any) -> None:
    target = ctypes.cast(function, ctypes.c_void_p).value
    ctypes.c_void_p.from_address(address).value = target


def _by_value(blob: bytes) -> ctypes.Structure:
    kind = type(
        "Params",
        (ctypes.Structure,),
        {"_fields_": (("words", ctypes.c_uint64 * (len(blob) // 8)),)},
    )
    return kind.from_buffer_copy(blob)  # type: ignore[attr-defined,no-any-return] # made above


class Library:
    """One engine's libllama, loaded for good, with every buffer it hands out a stand-in."""

    def __init__(self, path: str) -> None:
        try:
            self.lib = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            raise NoAnswer(f"the engine's library cannot be loaded: {error}") from error
        self.lines: deque[str] = deque(maxlen=_LINES_MAX)
        self.errors: deque[str] = deque(maxlen=8)
        self.allocated: list[tuple[str, int]] = []
        self.claimed: dict[str, dict[str, int]] = {"RS": {}, "output": {}}
        self.doubt = ""
        self._partial = ""
        self._log = _LOG(self._on_log)
        self._keep: list[Any] = [self._log]
        self.call("llama_log_set", None, self._log, None, types=(_LOG, ctypes.c_void_p))
        self.model_params = self._defaults("llama_model_default_params", MODEL_LAYOUTS)
        self.context_params = self._defaults("llama_context_default_params", CONTEXT_LAYOUTS)
        self._breakdown = self._find_breakdown()
        self.call("llama_backend_init", None)
        if not self.call("ggml_backend_dev_count", ctypes.c_size_t):
            # Engines whose backends are plugins look beside the program, which is Python here.
            self.call(
                "ggml_backend_load_all_from_path",
                None,
                os.path.dirname(path).encode(),  # noqa: PTH120 - bytes for C
                types=(ctypes.c_char_p,),
            )
        self._clear_offset = 0
        self._no_clear = _CLEAR(lambda _buffer, _value: None)
        self._stand_in_for_buffers()

    # Calls

    def function(self, name: str, result: Any, types: Sequence[Any]) -> Callable[..., Any]:
        try:
            found = getattr(self.lib, name)
        except AttributeError as error:
            raise NoAnswer(f"this engine's library has no {name}") from error
        found.restype, found.argtypes = result, tuple(types)
        return found  # type: ignore[no-any-return] # ctypes function pointers are Any

    def call(self, name: str, result: Any, *args: Any, types: Sequence[Any] = ()) -> Any:
        return self.function(name, result, types or [ctypes.c_void_p] * len(args))(*args)

    def _defaults(self, name: str, layouts: Mapping[int, Sequence[Field]]) -> Layout:
        if platform.machine() == "x86_64":
            # A struct this large is returned through a hidden first argument: offering it two
            # different canaries shows which bytes the library writes.
            seen = []
            for canary in (0xA5, 0x5A):
                buffer = ctypes.create_string_buffer(bytes([canary]) * _CANARY, _CANARY)
                self.call(name, ctypes.c_void_p, ctypes.addressof(buffer))
                seen.append(buffer.raw)
            written = [a == b for a, b in zip(*seen, strict=True)]
            blob = bytes(b if w else 0 for b, w in zip(seen[0], written, strict=True))
            return fit_layout(layouts, blob, written)
        words = type(
            "Any", (ctypes.Structure,), {"_fields_": (("b", ctypes.c_uint64 * (_CANARY // 8)),)}
        )
        return fit_layout(layouts, bytes(self.call(name, words)), None)

    def _find_breakdown(self) -> Callable[..., Any]:
        # The free function came after the method it calls; both return the same map.
        for name in (
            "_Z26llama_get_memory_breakdownPK13llama_context",
            "_ZNK13llama_context16memory_breakdownEv",
        ):
            with suppress(NoAnswer):
                return self.function(name, _Map, (ctypes.c_void_p,))
        raise NoAnswer("this engine's library gives no memory breakdown")

    # Log

    def _on_log(self, level: int, text: bytes | None, _data: object) -> None:
        self._partial += (text or b"").decode("utf-8", "replace")
        *whole, rest = self._partial.split("\n")
        self._partial = rest[:_LINE_MAX]
        for line in whole:
            self.lines.append(line[:_LINE_MAX])
            if level == _LOG_ERROR and line.strip():
                self.errors.append(line[:_LINE_MAX])
                # Should this be the engine's last word before it aborts, it must not be lost.
                os.write(2, f"{line[:_LINE_MAX]}\n".encode())
            if match := _CLAIM.search(line):
                self._claim(match["what"], match["name"], float(match["mib"]))

    def _claim(self, what: str, name: str, mib: float) -> None:
        """Give the allocations since the last claim their meaning, if their sum is what is said."""
        size = sum(n for buft, n in self.allocated if buft == name)
        if not _says(mib, size):
            self.doubt = f"{what} buffer of {mib} MiB is not the {size} bytes asked for"
        self.claimed[what][name] = self.claimed[what].get(name, 0) + size
        self.allocated = [(buft, n) for buft, n in self.allocated if buft != name]

    def forget(self) -> None:
        """Start a new story: what is logged and allocated from here on belongs to what follows."""
        self.lines.clear()
        self.errors.clear()
        self.allocated.clear()
        self.claimed = {"RS": {}, "output": {}}
        self.doubt = ""

    def complaint(self, otherwise: str) -> str:
        """The engine's own last words on an error, or ours."""
        return " / ".join(self.errors) or otherwise

    # Buffers

    def name(self, buft: int) -> str:
        return str(
            self.call("ggml_backend_buft_name", ctypes.c_char_p, buft).decode("utf-8", "replace")
        )

    def devices(self) -> Iterator[int]:
        for i in range(self.call("ggml_backend_dev_count", ctypes.c_size_t)):
            yield self.call("ggml_backend_dev_get", ctypes.c_void_p, i, types=(ctypes.c_size_t,))

    def _stand_in_for_buffers(self) -> None:
        """Let every buffer type hand out a small buffer that says it has the size asked for.

        Recurrent state and output are allocated and cleared even with ``no_alloc``; a 64-slot
        hybrid would take gigabytes. The two function pointers to replace (``alloc_buffer`` of the
        type, ``clear`` of the buffer) are internal, so both are proved on a CPU buffer first.
        """
        cpu = self.call("ggml_backend_cpu_buffer_type", ctypes.c_void_p)
        self._clear_offset = self._find_clear(cpu)
        types = {cpu}
        for device in self.devices():
            for getter in ("ggml_backend_dev_buffer_type", "ggml_backend_dev_host_buffer_type"):
                if buft := self.call(getter, ctypes.c_void_p, device):
                    types.add(buft)
        for buft in types:
            self._replace_alloc(buft)

    def _find_clear(self, buft: int) -> int:
        """Where a buffer has its ``clear``: functions come first, then buffer type, context, size.

        ``clear`` is the last function but one.
        """
        buffer = self._allocate(buft, _STUB_BYTES)
        at = [8 * i for i in range(16) if _word(buffer + 8 * i) == buft]
        if len(at) != 1 or _word(buffer + at[0] + 16) != _STUB_BYTES:
            raise NoAnswer("the layout of this engine's buffers is unknown")
        cleared: list[tuple[int, int]] = []
        probe = _CLEAR(lambda b, value: cleared.append((b, value)))
        _point(buffer + at[0] - 16, probe)
        arguments = (ctypes.c_void_p, ctypes.c_uint8)
        self.call("ggml_backend_buffer_clear", None, buffer, 7, types=arguments)
        if cleared != [(buffer, 7)]:
            raise NoAnswer("this engine clears its buffers in an unknown way")
        self.call("ggml_backend_buffer_free", None, buffer)
        return at[0] - 16

    def _allocate(self, buft: int, size: int) -> int:
        arguments = (ctypes.c_void_p, ctypes.c_size_t)
        buffer = self.call(
            "ggml_backend_buft_alloc_buffer", ctypes.c_void_p, buft, size, types=arguments
        )
        if not buffer:
            raise NoAnswer(f"cannot allocate even {size} bytes of {self.name(buft)}")
        return int(buffer)

    def _replace_alloc(self, buft: int) -> None:
        slot = buft + 8
        if not _word(slot):
            raise NoAnswer(f"the allocator of buffer type {self.name(buft)} is not where expected")
        original = _ALLOC_BUFFER(_word(slot))
        name = self.name(buft)

        def allocate(buft: int, size: int) -> int | None:
            buffer: int | None = original(buft, min(size, _STUB_BYTES))
            if buffer:
                self.allocated.append((name, size))
                ctypes.c_uint64.from_address(buffer + self._clear_offset + 32).value = size
                _point(buffer + self._clear_offset, self._no_clear)
            return buffer

        replacement = _ALLOC_BUFFER(allocate)
        self._keep += [original, replacement]
        _point(slot, replacement)
        asked = 3 * _STUB_BYTES
        buffer = self._allocate(buft, asked)
        told = self.call("ggml_backend_buffer_get_size", ctypes.c_size_t, buffer)
        if self.allocated != [(name, asked)] or told != asked:
            raise NoAnswer(f"buffer type {name} allocates in an unknown way")
        self.call("ggml_backend_buffer_free", None, buffer)
        self.allocated.clear()

    # Models and contexts

    def load(self, request: Mapping[str, Any]) -> int:
        """A model without weights. Only the header of the file is read."""
        self.forget()
        values = {
            "n_gpu_layers": request["n_gpu_layers"],
            "split_mode": _choice(_SPLIT_MODES, request, "split_mode"),
            "main_gpu": request["main_gpu"],
            "use_extra_bufts": request["use_extra_bufts"],
            "no_host": request["no_host"],
            "no_alloc": True,
            # Mapping and no_alloc exclude each other; 0 is the load mode "none".
            **({"load_mode": 0} if "load_mode" in self.model_params.members else {"use_mmap": 0}),
        }
        if "use_direct_io" in self.model_params.members:
            values["use_direct_io"] = 0
        if "load_mtp" in self.model_params.members:
            values["load_mtp"] = request["load_mtp"]
        if request["tensor_split"]:
            most = self.call("llama_max_devices", ctypes.c_size_t)
            split = (ctypes.c_float * max(most, len(request["tensor_split"])))(
                *request["tensor_split"]
            )
            self._keep.append(split)
            values["tensor_split"] = ctypes.addressof(split)
        if request["devices"] is not None:
            devices = (ctypes.c_void_p * (len(request["devices"]) + 1))(
                *(self._device(name) for name in request["devices"])
            )
            self._keep.append(devices)
            values["devices"] = ctypes.addressof(devices)
        if request["overrides"]:
            values["tensor_buft_overrides"] = self._overrides(request["overrides"])
        params = _by_value(self.model_params.filled(values))
        model = self.call(
            "llama_model_load_from_file",
            ctypes.c_void_p,
            os.fsencode(request["model"]),
            params,
            types=(ctypes.c_char_p, type(params)),
        )
        if not model:
            raise NoAnswer(self.complaint("the engine cannot load the model"))
        if self.allocated:
            raise NoAnswer("the engine allocated weights in a dry run")
        return int(model)

    def _overrides(self, overrides: Sequence[Sequence[str]]) -> int:
        """An array of pattern and buffer type, ended by nulls, as the library keeps pointers to."""
        types = {self.name(buft): buft for buft in self._device_buffer_types()}
        words: list[int] = []
        for pattern, buft in overrides:
            if buft not in types:
                raise NoAnswer(f"this engine has no buffer type {buft}")
            text = ctypes.create_string_buffer(pattern.encode())
            self._keep.append(text)
            words += [ctypes.addressof(text), types[buft]]
        array = (ctypes.c_void_p * (len(words) + 2))(*words, None, None)
        self._keep.append(array)
        return ctypes.addressof(array)

    def _device_buffer_types(self) -> Iterator[int]:
        for device in self.devices():
            if buft := self.call("ggml_backend_dev_buffer_type", ctypes.c_void_p, device):
                yield int(buft)

    def _device(self, name: str) -> int:
        device = self.call(
            "ggml_backend_dev_by_name",
            ctypes.c_void_p,
            name.encode(),
            types=(ctypes.c_char_p,),
        )
        if not device:
            raise NoAnswer(f"this engine has no device {name}")
        return int(device)

    def context(self, model: int, request: Mapping[str, Any]) -> dict[str, Any]:
        """Build one context, read it, free it."""
        self.forget()
        values = {
            name: request[name]
            for name in (
                *("n_ctx", "n_batch", "n_ubatch", "n_seq_max", "kv_unified", "swa_full"),
                *("offload_kqv", "op_offload", "embeddings"),
            )
        }
        values["flash_attn_type"] = _choice(_FLASH_ATTN, request, "flash_attn")
        values["type_k"] = self._type(request["type_k"])
        values["type_v"] = self._type(request["type_v"])
        members = self.context_params.members
        for name in ("n_rs_seq", "n_outputs_max", "n_outputs_max_per_seq"):
            # Where a library lacks one, it behaves as if the value were its default.
            if name in members or (name == "n_rs_seq" and request[name]):
                values[name] = request[name]
        if ctx_type := _choice(_CONTEXT_TYPES, request, "ctx_type"):
            values["ctx_type"] = ctx_type
        params = _by_value(self.context_params.filled(values))
        before = _address_space()
        context = self.call(
            "llama_init_from_model",
            ctypes.c_void_p,
            model,
            params,
            types=(ctypes.c_void_p, type(params)),
        )
        grown = _address_space() - before
        if not context:
            raise NoAnswer(self.complaint("the engine cannot create the context"))
        try:
            answer = self._read(context, grown)
        finally:
            self.call("llama_free", None, context)
        if self.call("llama_model_has_encoder", ctypes.c_bool, model):
            # Such a context puts out the whole batch, whatever it is asked for.
            request = {**request, "n_outputs_max": answer["n_batch"]}
        if wrong := self.doubt or _contradiction(request, answer, self.lines):
            raise NoAnswer(f"the engine changed the given settings: {wrong}")
        return answer

    def _type(self, name: str) -> int:
        number = _CACHE_TYPES.get(name, -1)
        told = self.call("ggml_type_name", ctypes.c_char_p, max(number, 0), types=(ctypes.c_int,))
        if told != name.encode():
            raise NoAnswer(f"this engine has no cache type {name}")
        return number

    def _read(self, context: int, grown: int) -> dict[str, Any]:
        def number(name: str) -> int:
            return int(self.call(f"llama_{name}", ctypes.c_uint32, context))

        buffers = []
        for name, model, ctx, compute in self._walk(self._breakdown(context)):
            buffers.append(
                {
                    "device": name,
                    "model": model,
                    "context": ctx,
                    "compute": compute,
                    "rs": self.claimed["RS"].pop(name, 0),
                    "output": self.claimed["output"].pop(name, 0),
                }
            )
        for what, left in self.claimed.items():
            for name, size in left.items():
                if what == "RS" and size:
                    raise NoAnswer(f"the breakdown lacks RS of {size} bytes in {name}")
                buffers.append(
                    {
                        "device": name,
                        "model": 0,
                        "context": 0,
                        "compute": 0,
                        "rs": 0,
                        "output": size,
                    }
                )
        return {
            "buffers": buffers,
            "n_ctx": number("n_ctx"),
            "n_ctx_seq": number("n_ctx_seq"),
            "n_batch": number("n_batch"),
            "n_ubatch": number("n_ubatch"),
            "n_seq_max": number("n_seq_max"),
            "n_rs_seq": number("n_rs_seq") if hasattr(self.lib, "llama_n_rs_seq") else 0,
            "address_space_delta": grown,
            "log": [line for line in self.lines if " size = " in line][-_SIZE_LINES_MAX:],
        }

    def _walk(self, tree: _Map) -> Iterator[tuple[str, int, int, int]]:
        for node in _nodes(tree):
            model, context, compute = (_word(node + 40 + 8 * i) for i in range(3))
            yield self.name(_word(node + 32)), model, context, compute

    # Projectors

    def projector(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """What a projector takes when the server is ready: weights, and compute of its warm-up."""
        bare = self._usage(request, warmup=False)
        stored: dict[str, int] = {}
        for name, size in self.allocated:
            stored[name] = stored.get(name, 0) + size
        whole = self._usage(request, warmup=True)
        flash_attn = request["flash_attn"] == "on"
        if request["flash_attn"] == "auto":
            flash_attn = whole == self._usage({**request, "flash_attn": "on"}, warmup=True)
        if any(stored.get(name, 0) < size for name, size in bare.items()):
            raise NoAnswer("the engine's account of the projector's weights has an unknown form")
        return {
            "buffers": [
                {
                    "device": name,
                    "model": stored.get(name, 0),
                    "tensors": bare.get(name, 0),
                    "compute": size - bare.get(name, 0),
                }
                for name, size in whole.items()
            ],
            "flash_attn": flash_attn,
        }

    def _usage(self, request: Mapping[str, Any], *, warmup: bool) -> dict[str, int]:
        """Bytes by buffer type, without the padding of tensors."""
        self.forget()
        self.call("mtmd_log_set", None, self._log, None, types=(_LOG, ctypes.c_void_p))
        layout = self._defaults("mtmd_context_params_default", PROJECTOR_LAYOUTS)
        values = {name: request[name] for name in ("image_min_tokens", "image_max_tokens")}
        values |= {
            "use_gpu": request["use_gpu"],
            "flash_attn_type": _choice(_FLASH_ATTN, request, "flash_attn"),
            "warmup": warmup,
        }
        if request["device"] and request["use_gpu"] and "device" in layout.members:
            values["device"] = self._device(request["device"])
        params = _by_value(layout.filled(values))
        usage = self.call(
            "_Z21mtmd_get_memory_usagePKc19mtmd_context_params",
            _Usage,
            os.fsencode(request["path"]),
            params,
            types=(ctypes.c_char_p, type(params)),
        )
        sizes: dict[str, int] = {}
        for node in _nodes(usage.map):
            buft = self.call("ggml_backend_dev_buffer_type", ctypes.c_void_p, _word(node + 32))
            sizes[self.name(buft)] = _word(node + 40)
        if not sizes:
            raise NoAnswer(self.complaint("the engine cannot load the projector"))
        return sizes


def _nodes(tree: _Map) -> Iterator[int]:
    """Addresses of a map's nodes: colour, parent, left, right, then the pair of key and value."""
    left, seen = [tree.root], 0
    while left:
        node = left.pop()
        if not node:
            continue
        seen += 1
        if seen > tree.count or tree.count > 256:
            raise NoAnswer("the memory breakdown of this engine is not a map known here")
        left += [_word(node + 16), _word(node + 24)]
        yield node
    if seen != tree.count:
        raise NoAnswer("the memory breakdown of this engine is not a map known here")


def _choice(table: Mapping[str, int], request: Mapping[str, Any], name: str) -> int:
    if request[name] not in table:
        raise NoAnswer(f"{name} must be one of {', '.join(table)}, not {request[name]}")
    return table[request[name]]


_CONTEXT_TYPES: Final = {"default": 0, "mtp": 1}
_SPLIT_MODES: Final = {"none": 0, "layer": 1, "row": 2, "tensor": 3}
_CACHE_TYPES: Final = {
    "f32": 0,
    "f16": 1,
    "q4_0": 2,
    "q4_1": 3,
    "q5_0": 6,
    "q5_1": 7,
    "q8_0": 8,
    "iq4_nl": 20,
    "bf16": 30,
}
"""ggml types as files number them."""
_FLASH_ATTN: Final = {"auto": -1, "off": 0, "on": 1}
_CLAIM: Final = re.compile(
    r":\s+(?P<name>\S+)\s+(?P<what>RS|output) buffer size =\s*(?P<mib>[0-9.]+) MiB"
)
_COMPUTE: Final = re.compile(r":\s+(?P<name>\S+) compute buffer size =\s*(?P<mib>[0-9.]+) MiB")
_TYPES: Final = re.compile(r"seqs\), K \((\w+)\):.*, V \((\w+)\):")
_SETTING: Final = re.compile(r"llama_context: (?P<name>\w+)\s+= (?P<value>\S+)")


def _says(mib: float, size: int) -> bool:
    return abs(mib - size / (1 << 20)) <= 0.0051


def _address_space() -> int:
    with open("/proc/self/status", "rb") as file:  # noqa: PTH123 - the child stays small
        return int(file.read().split(b"VmSize:")[1].split()[0]) << 10


def _contradiction(
    request: Mapping[str, Any], answer: Mapping[str, Any], lines: Sequence[str] | deque[str]
) -> str:
    """What the context says of itself and was not asked for; empty if nothing.

    A layout that is wrong by one member would still run: these lines are where it shows.
    """
    said = {m["name"]: m["value"] for line in lines if (m := _SETTING.search(line))}
    flash_attn = {"auto": "auto", "on": "enabled", "off": "disabled"}[request["flash_attn"]]
    wanted = {
        "kv_unified": {"true" if request["kv_unified"] else "false"},
        # Some architectures turn it off whatever is asked.
        "flash_attn": {flash_attn, "disabled"},
        "n_outputs_max": {str(request["n_outputs_max"])},
    }
    quantised = request["type_v"] not in ("f32", "f16", "bf16")
    if flash_attn == "auto" and (quantised or request["split_mode"] == "tensor"):
        # Both need it, and auto then means on.
        wanted["flash_attn"].add("enabled")
    for name, values in wanted.items():
        if said.get(name, min(values)) not in values:
            return f"{name} = {said[name]}"
    for name in ("n_batch", "n_ubatch", "n_seq_max", "n_rs_seq"):
        if answer[name] > request[name]:
            return f"{name} = {answer[name]}"
    slack = 256 * request["n_seq_max"]
    if answer["n_seq_max"] != request["n_seq_max"] or (
        request["n_ctx"] and abs(answer["n_ctx"] - request["n_ctx"]) >= slack
    ):
        return f"n_ctx = {answer['n_ctx']}, n_seq_max = {answer['n_seq_max']}"
    for line in lines:
        types = _TYPES.search(line)
        if types and types.groups() != (request["type_k"], request["type_v"]):
            return f"K ({types[1]}), V ({types[2]})"
    compute = {b["device"]: b["compute"] for b in answer["buffers"]}
    for line in lines:
        if (match := _COMPUTE.search(line)) and not _says(
            float(match["mib"]), compute.get(match["name"], 0)
        ):
            return f"compute of {match['name']} is {compute.get(match['name'])} bytes, {line!r}"
    return ""


_MODEL_SETTINGS: Final = (
    *("model", "n_gpu_layers", "split_mode", "main_gpu", "tensor_split", "devices"),
    *("use_extra_bufts", "no_host", "load_mtp", "overrides"),
)


def answers(library: str, requests: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """One answer or reason per request, in order; a model that several share is loaded once."""
    engine: Library | None = None
    model, loaded = 0, None
    for index, request in enumerate(requests):
        try:
            engine = engine or Library(library)
            key = [request[name] for name in _MODEL_SETTINGS]
            if key != loaded:
                if model:
                    engine.call("llama_model_free", None, model)
                model, loaded = 0, None
                model, loaded = engine.load(request), key
            yield {"index": index, "answer": engine.context(model, request)}
        except NoAnswer as refusal:
            yield {"index": index, "reason": str(refusal)}


def projected(library: str, projector: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The one answer or reason for a projector.

    Args:
        library: Path of ``libmtmd.so``; what it depends on is found through it.
    """
    try:
        yield {"index": 0, "projector": Library(library).projector(projector)}
    except NoAnswer as refusal:
        yield {"index": 0, "reason": str(refusal)}


def _lift_limit() -> None:
    """Address space that Arriero's own caller was limited to says nothing about a plan."""
    if sys.platform == "linux":
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))


def main() -> None:
    # What the engine prints must not mix with the answers.
    out = os.dup(1)
    os.dup2(2, 1)
    _lift_limit()
    spec = json.loads(sys.argv[1])
    for answer in (projected if "projector" in spec else answers)(**spec):
        os.write(out, f"\n{json.dumps(answer)}\n".encode())


if __name__ == "__main__":
    main()
