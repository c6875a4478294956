"""Lines for host memory that llama.cpp shows no size of: graph metadata, prompts, checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from arriero.base.sizes import human
from arriero.base.words import Component, Method
from arriero.engine.oracle import DryRun
from arriero.launch import Launch
from arriero.launch.builds import AFTER_10435
from arriero.launch.params import EngineParams
from arriero.memory.architectures import Memory
from arriero.memory.caches import CacheTensor, Effective, effective
from arriero.memory.hparams import Hparams
from arriero.memory.placement import CPU
from arriero.memory.plan.context import ContextSizes
from arriero.memory.plan.lines import at_most, growing
from arriero.record import PlanBuffer

CELL_BYTES: Final = 52
"""Bookkeeping of one KV cell: position, shift, extension, set of sequences (llama-kv-cells.h)."""
CHECKPOINTS_OF_A_TURN: Final = 4
"""The most that one turn of a chat adds to a slot: where its own tokens begin, at its user message,
``n_ubatch`` + 4 and 4 tokens before its end (tools/server/server-context.cpp). Builds to 10435 then
drop those of earlier turns that are closer than ``--checkpoint-min-step``, 11434 keeps them: 31
after 40 turns. Slots that share a batch can split it into more."""
_HEADER: Final = 8
_TENSOR: Final = 12
"""Type and row size before each tensor of a saved state."""
_CELL: Final = 12
"""Position, number of sequences and sequence of a saved cell."""


def kept_checkpoints(launch: Launch) -> int:
    """The most that a slot keeps: what drafts keeps one more."""
    return launch.checkpoints + bool(launch.speculation)


def host_lines(context: ContextSizes, dry: DryRun | None) -> Iterator[PlanBuffer]:
    """Graph metadata from the start on; saved prompts and checkpoints as serving fills them."""
    inputs, h = context.inputs, context.hparams
    grown = dry.address_space_delta if dry is not None else None
    if grown is None:
        tensors = len(inputs.basis.header.tensors)
        grown = graph_bound(h, context.effective, context.tensors, tensors)
    method = Method.MEASURED if dry is not None else Method.ESTIMATED
    yield at_most(Component.GRAPH, CPU, grown, method)
    if h.memory is Memory.NONE:
        return
    if inputs.launch.cache_ram is None:
        reason = "with -cram -1 its only limit is n_ctx tokens"
        yield growing(Component.PROMPT_CACHE, CPU, None, Method.UNKNOWN, reason)
    elif inputs.launch.cache_ram:
        yield growing(Component.PROMPT_CACHE, CPU, inputs.launch.cache_ram, Method.EXACT)
    each = checkpoint_bytes(h, inputs.params, context.tensors, inputs.rules)
    kept = kept_checkpoints(inputs.launch)
    if each and kept:
        method = Method.ESTIMATED if h.memory is Memory.DSV4 else Method.EXACT
        size = each * kept * context.effective.context.n_seq_max
        turn = min(CHECKPOINTS_OF_A_TURN, kept)
        reason = f"a turn of a chat adds up to {turn} of {human(each)}"
        yield growing(Component.CHECKPOINTS, CPU, size, method, reason)


def checkpoint_bytes(
    hparams: Hparams,
    request: EngineParams,
    tensors: Sequence[CacheTensor],
    build: int | None = None,
) -> int:
    """The most that one context checkpoint takes; 0 if the server makes none.

    A checkpoint is what cannot be cut back token by token: recurrent state, or the window of an
    SWA cache (``llama_state_seq_get_size_ext`` with ``PARTIAL_ONLY``). Exact for recurrent state
    and for a full window.
    """
    eff = effective(hparams, request, build)
    parts = list(_parts(hparams, request, tensors, eff, build))
    return _HEADER + sum(parts) if parts else 0


def _parts(
    h: Hparams,
    request: EngineParams,
    tensors: Sequence[CacheTensor],
    eff: Effective,
    build: int | None,
) -> Iterator[int]:
    slots = max(1, eff.context.n_seq_max)
    state = [t for t in tensors if t.component is Component.RS]
    if state:
        rows = slots * (1 + eff.n_rs_seq)
        yield 4 + 8 + 8 + sum(_TENSOR + t.bytes // rows for t in state)
    window = [t for t in tensors if t.cache == "swa"]
    if window and not request.swa_full:
        streams = slots if h.memory is Memory.DSV4 or not request.kv_unified else 1
        cells = min(h.n_swa, window[0].cells // streams)
        meta = 16 if build is None or build >= AFTER_10435 else 8
        rows_bytes = sum(_TENSOR + t.bytes // t.cells * cells for t in window)
        yield 4 + 4 * streams + cells * _CELL + meta + rows_bytes
    compressed = [t for t in tensors if t.cache.endswith("compressor")]
    if compressed:
        rows = slots * (1 + eff.n_rs_seq)
        yield 12 + 3 * 24 + sum(4 + _TENSOR + t.bytes // rows for t in compressed)


def saved_prompt_bytes(
    hparams: Hparams,
    request: EngineParams,
    tensors: Sequence[CacheTensor],
    tokens: int,
    build: int | None = None,
) -> int:
    """What a saved prompt of so many tokens takes in the prompt cache, its checkpoints aside.

    The state of one sequence (``llama_state_seq_get_size_ext``): every row that it uses, and its
    recurrent state.
    """
    eff = effective(hparams, request, build)
    rows = max(1, eff.context.n_seq_max) * (1 + eff.n_rs_seq)
    window = 0 if request.swa_full else hparams.n_swa
    size = _HEADER
    for tensor in tensors:
        if not tensor.cells:
            size += _TENSOR + tensor.bytes // rows
            continue
        used = min(tokens, window) if tensor.cache == "swa" and window else tokens
        used = min(used, tensor.cells)
        size += _TENSOR + tensor.bytes // tensor.cells * used
    caches = {t.cache for t in tensors if t.cells}
    return size + len(caches) * tokens * _CELL


def cell_bytes(tensors: Sequence[CacheTensor]) -> int:
    """Bookkeeping of all KV cells. It grows a little with use: a set node for each used cell."""
    return CELL_BYTES * sum({t.cache: t.cells for t in tensors if t.cells}.values())


_NODE: Final = 60 * 336 + 3 * 704
"""Bytes per graph node: the scheduler's context and three arenas of graph metadata."""
_MANY_NODES: Final = {
    "qwen3next",
    "qwen35",
    "qwen35moe",
    "qwen4exp",
    "kimi-linear",
    "kimi-k3",
    "glm5-next",
    "bailingmoe3",
    "minimax-01",
    "minimax-m3",
    "deepseek4",
    "nanbeige",
    "hy_v4",
}
"""Architectures whose graphs grow with the micro-batch (src/llama-context.cpp: graph_max_nodes)."""
_MOST_NODES: Final = frozenset({"kimi-k3", "glm5-next"})


def graph_bound(
    hparams: Hparams, eff: Effective, tensors: Sequence[CacheTensor], n_tensors: int
) -> int:
    """Address space for graph metadata and cells; part of it becomes resident."""
    nodes = max(1024, 8 * n_tensors)
    if hparams.arch in _MANY_NODES:
        per_token = 160 if hparams.arch in _MOST_NODES else 40
        nodes = max(per_token * eff.n_ubatch, 32 * n_tensors)
    return nodes * _NODE + cell_bytes(tensors)
