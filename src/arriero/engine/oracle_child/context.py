"""The dry run of a context."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from typing import Any, Final

from .choices import CACHE_TYPES, CONTEXT_TYPES, FLASH_ATTN, choice
from .contradiction import contradiction
from .dry_engine import DryEngine
from .library import Library
from .raw import by_value, nodes, word
from .refusal import NoAnswer

_SIZE_LINES_MAX: Final = 100
"""An answer is one line of at most 64 KiB, which is what Arriero keeps of a line."""


def run_context(engine: DryEngine, model: int, request: Mapping[str, Any]) -> dict[str, Any]:
    """Build one context, read it, free it."""
    library, account = engine.library, engine.account
    account.forget()
    params = by_value(engine.context_params.filled(_values(engine, request)))
    before = _address_space()
    context = library.call(
        "llama_init_from_model",
        ctypes.c_void_p,
        model,
        params,
        types=(ctypes.c_void_p, type(params)),
    )
    grown = _address_space() - before
    if not context:
        raise NoAnswer(account.complaint("the engine cannot create the context"))
    try:
        answer = _read(engine, context, grown)
    finally:
        library.call("llama_free", None, context)
    if library.call("llama_model_has_encoder", ctypes.c_bool, model):
        # Such a context puts out the whole batch, whatever it is asked for.
        request = {**request, "n_outputs_max": answer["n_batch"]}
    if wrong := account.doubt or contradiction(request, answer, account.lines):
        raise NoAnswer(f"the engine changed the given settings: {wrong}")
    return answer


def _values(engine: DryEngine, request: Mapping[str, Any]) -> dict[str, float]:
    values = {
        name: request[name]
        for name in (
            *("n_ctx", "n_batch", "n_ubatch", "n_seq_max", "kv_unified", "swa_full"),
            *("offload_kqv", "op_offload", "embeddings"),
        )
    }
    values["flash_attn_type"] = choice(FLASH_ATTN, request, "flash_attn")
    values["type_k"] = _cache_type(engine.library, request["type_k"])
    values["type_v"] = _cache_type(engine.library, request["type_v"])
    members = engine.context_params.members
    for name in ("n_rs_seq", "n_outputs_max", "n_outputs_max_per_seq"):
        # Where a library lacks one, it behaves as if the value were its default.
        if name in members or (name == "n_rs_seq" and request[name]):
            values[name] = request[name]
    if ctx_type := choice(CONTEXT_TYPES, request, "ctx_type"):
        values["ctx_type"] = ctx_type
    return values


def _cache_type(library: Library, name: str) -> int:
    number = CACHE_TYPES.get(name, -1)
    told = library.call("ggml_type_name", ctypes.c_char_p, max(number, 0), types=(ctypes.c_int,))
    if told != name.encode():
        raise NoAnswer(f"this engine has no cache type {name}")
    return number


def _read(engine: DryEngine, context: int, grown: int) -> dict[str, Any]:
    def number(name: str) -> int:
        return int(engine.library.call(f"llama_{name}", ctypes.c_uint32, context))

    return {
        "buffers": list(_buffers(engine, context)),
        "n_ctx": number("n_ctx"),
        "n_ctx_seq": number("n_ctx_seq"),
        "n_batch": number("n_batch"),
        "n_ubatch": number("n_ubatch"),
        "n_seq_max": number("n_seq_max"),
        "n_rs_seq": number("n_rs_seq") if hasattr(engine.library.lib, "llama_n_rs_seq") else 0,
        "address_space_delta": grown,
        "log": [line for line in engine.account.lines if " size = " in line][-_SIZE_LINES_MAX:],
    }


def _buffers(engine: DryEngine, context: int) -> Iterator[dict[str, Any]]:
    """The engine's breakdown, then the output buffers that stand in none of its rows."""
    rs, output = engine.account.claimed["RS"], engine.account.claimed["output"]
    for node in nodes(engine.breakdown(context)):
        name = engine.library.name(word(node + 32))
        model, caches, compute = (word(node + 40 + 8 * i) for i in range(3))
        yield _row(name, model, caches, compute, rs=rs.pop(name, 0), output=output.pop(name, 0))
    for name, size in rs.items():
        if size:
            raise NoAnswer(f"the breakdown lacks RS of {size} bytes in {name}")
        yield _row(name)
    for name, size in output.items():
        yield _row(name, output=size)


def _row(
    device: str, model: int = 0, context: int = 0, compute: int = 0, *, rs: int = 0, output: int = 0
) -> dict[str, Any]:
    sizes = {"model": model, "context": context, "compute": compute, "rs": rs, "output": output}
    return {"device": device, **sizes}


def _address_space() -> int:
    with open("/proc/self/status", "rb") as file:  # noqa: PTH123 - the child stays small
        return int(file.read().split(b"VmSize:")[1].split()[0]) << 10
