"""What helps against a failure that only a log tells of: no command to change, none to plan."""

from __future__ import annotations

from collections.abc import Iterator

from arriero.base.buffers import is_on_host
from arriero.base.sizes import human
from arriero.base.words import Component, Cost, Kind, Phase
from arriero.logs.model import Failure
from arriero.record import Explanation, Remedy

_MEMORY = (Kind.ALLOCATION, Kind.BUFFER_LIMIT, Kind.RUNTIME_ALLOCATION)


def of_log(log: Explanation) -> tuple[Remedy, ...]:
    """Changes for the failure of one log, cheapest first; none where it names no cause."""
    if log.failure is None:
        return ()
    found = dict.fromkeys(_remedies(log.failure, log))
    return tuple(sorted(found, key=lambda remedy: remedy.cost.rank))


def _remedies(failure: Failure, log: Explanation) -> Iterator[Remedy]:
    if failure.kind in _MEMORY:
        yield from _memory(failure, log)
        return
    match failure.kind:
        case Kind.CACHE_FULL:
            yield from _cells(log)
        case Kind.STATE_GROWTH:
            yield from _state(failure.component)
        case Kind.REPROCESSING:
            yield Remedy(
                change="-ctxcp 4 or more, and a beginning of the prompt that does not change",
                cost=Cost.FREE,
                why="only from a checkpoint can recurrent state or a window go back",
            )
        case Kind.RPC:
            yield from _RPC
        case Kind.KILLED:
            yield from _KILLED
        case Kind.CRASH if failure.component is Component.PROMPT_CACHE:
            yield from _state(Component.PROMPT_CACHE)
        case _:
            return


def _memory(failure: Failure, log: Explanation) -> Iterator[Remedy]:
    match failure.component:
        case Component.RS:
            yield from _per_slot(failure, log)
        case Component.KV:
            yield from _CONTEXT
        case Component.COMPUTE:
            yield from _compute(failure, log)
        case Component.GRAPH:
            yield _SMALLER_UBATCH
            yield _FEWER_SLOTS
        case Component.WEIGHTS:
            yield from _weights(failure)
        case None:
            yield from _UNNAMED
            if failure.phase is Phase.LOAD:
                yield from _weights(failure)
        case Component.OUTPUT:
            yield _FEWER_SLOTS
        case Component.MMPROJ:
            yield from _IMAGES
        case Component.DRAFT:
            yield from _DRAFT
        case Component.POOL:
            yield from _POOL
        case Component.PROMPT_CACHE | Component.CHECKPOINTS:
            yield from _state(failure.component)
    if failure.kind is Kind.RUNTIME_ALLOCATION and failure.component in (None, Component.COMPUTE):
        yield from _POOL


def _per_slot(failure: Failure, log: Explanation) -> Iterator[Remedy]:
    slots, planes = log.effective.n_seq_max, log.effective.n_rs_seq
    why = "each slot has a recurrent state of its own, however long the context is"
    if slots and slots > 1 and failure.bytes:
        why += f": {human(failure.bytes)} are {slots} times {human(failure.bytes // slots)}"
    elif slots and slots > 1:
        why += f" (here {slots} slots)"
    yield Remedy(change="-np 1", cost=Cost.CONCURRENCY, why=why)
    if planes:
        yield Remedy(
            change="--spec-draft-n-max 2",
            cost=Cost.SPEED,
            why=f"drafting keeps {planes} more copies of recurrent state, one per drafted token",
        )


def _compute(failure: Failure, log: Explanation) -> Iterator[Remedy]:
    if log.effective.flash_attn not in ("enabled", "1"):
        yield Remedy(
            change="-fa on",
            cost=Cost.FREE,
            why="without flash attention the scores of the whole context are kept in memory",
        )
    if failure.phase is Phase.SERVING:
        yield Remedy(
            change="--no-context-shift",
            cost=Cost.CONTEXT,
            why="a shift of a full context needs a graph that the start does not reserve",
        )
    yield _SMALLER_UBATCH
    yield _SHORTER


def _weights(failure: Failure) -> Iterator[Remedy]:
    device = failure.device or ""
    if device == "CPU_REPACK":
        yield Remedy(
            change="--no-repack",
            cost=Cost.SPEED,
            why="repacking keeps a second copy of the weights beside the mapped file",
        )
        return
    if is_on_host(device):
        yield Remedy(
            change="--mmap (newer builds: -lm mmap)",
            cost=Cost.FREE,
            why="the kernel can drop and reread pages of a mapped file, but not of a copy",
        )
        return
    if device.startswith("RPC"):
        yield Remedy(
            change="-ts with a smaller share for this worker, and --device with all to use",
            cost=Cost.SPEED,
            why="a worker's share follows the free memory that it reports",
        )
    yield Remedy(
        change="leave out -ngl, -ts and --fit off, or set a lower -ngl",
        cost=Cost.SPEED,
        why="--fit moves layers that do not fit to the host, unless one of these flags is given",
    )
    yield Remedy(
        change="-ncmoe N for a model of experts",
        cost=Cost.SPEED,
        why="the experts of the first N layers stay on the host",
    )
    yield Remedy(change="a smaller quantisation", cost=Cost.QUALITY, why="the file has fewer bytes")


def _cells(log: Explanation) -> Iterator[Remedy]:
    slots = log.effective.n_seq_max or 0
    if slots > 1 or any(notice.id == "slots_auto" for notice in log.notices):
        yield Remedy(
            change="-np 1, or as many slots as there are users",
            cost=Cost.CONCURRENCY,
            why="all slots share one context; when it is full, every slot stops",
        )
    yield Remedy(
        change="a larger -c, or a client that sends a shorter history",
        cost=Cost.CONTEXT,
        why="every token of a prompt or an answer takes one cell of the context",
    )


def _state(component: Component | None) -> Iterator[Remedy]:
    if component is not Component.CHECKPOINTS:
        yield Remedy(
            change="-cram 0, or as many MiB as the host can spare",
            cost=Cost.PROMPT_REUSE,
            why="saved prompts may take 8 GiB by default, and one prompt of any size is kept",
        )
    if component is not Component.PROMPT_CACHE:
        yield Remedy(
            change="-ctxcp 4 or fewer",
            cost=Cost.PROMPT_REUSE,
            why="the limit on checkpoints is a number per slot, not a size",
        )


_UNNAMED = (
    Remedy(
        change="run arriero diagnose -- llama-server ... with your options",
        cost=Cost.FREE,
        why="the log does not say what the memory was for; controlled runs do",
    ),
    Remedy(
        change="a lower -ngl, or none",
        cost=Cost.SPEED,
        why="fewer layers on the device take less of its memory",
    ),
    Remedy(change="a smaller -c", cost=Cost.CONTEXT, why="caches and compute grow with it"),
)
_SMALLER_UBATCH = Remedy(
    change="-ub 256 or less",
    cost=Cost.SPEED,
    why="compute buffers and graph metadata grow with the micro-batch",
)
_FEWER_SLOTS = Remedy(
    change="-np 1",
    cost=Cost.CONCURRENCY,
    why="output buffers and graphs are reserved for every slot",
)
_SHORTER = Remedy(
    change="a smaller -c", cost=Cost.CONTEXT, why="the compute buffer grows with the context"
)
_CONTEXT = (
    Remedy(
        change="-nkvo",
        cost=Cost.SPEED,
        why="the KV cache moves to host memory, and attention is computed there",
    ),
    Remedy(
        change="a smaller -c",
        cost=Cost.CONTEXT,
        why="the KV cache grows linearly with -c; without -c it may be the whole training context",
    ),
    Remedy(
        change="-ctk q8_0 -ctv q8_0", cost=Cost.QUALITY, why="the KV cache takes about half as much"
    ),
)
_IMAGES = (
    Remedy(
        change="--image-max-tokens N",
        cost=Cost.QUALITY,
        why="larger images are scaled down first, so they take less memory",
    ),
    Remedy(
        change="--no-mmproj-offload", cost=Cost.SPEED, why="the projector then uses host memory"
    ),
)
_DRAFT = (
    Remedy(change="-ngld 0", cost=Cost.SPEED, why="the draft model stays on the host"),
    Remedy(
        change="a smaller -c",
        cost=Cost.CONTEXT,
        why="the draft context is as long as the model's and has buffers of its own",
    ),
)
_POOL = (
    Remedy(
        change="-fitt 2048, or leave 1 to 2 GiB free in another way",
        cost=Cost.SPEED,
        why="a backend takes more memory while it computes than the start reserves",
    ),
    _SMALLER_UBATCH,
)
_RPC = (
    Remedy(
        change="restart the workers, then the server; a supervisor can do this automatically",
        cost=Cost.FREE,
        why="a server that has lost a worker cannot continue",
    ),
    Remedy(
        change="read the worker's own log, and run the same build on every machine",
        cost=Cost.FREE,
        why="the server logs the same line whether a worker ran out of memory, cannot compute an"
        " operation or speaks another protocol",
    ),
    Remedy(
        change="-cram 0, if the server ended while saving a prompt",
        cost=Cost.PROMPT_REUSE,
        why="to save a prompt, the server reads its state back from the workers",
    ),
    Remedy(
        change="-ts with a smaller share for the worker",
        cost=Cost.SPEED,
        why="a worker needs more memory than its buffers alone",
    ),
)
_KILLED = (
    Remedy(
        change="a larger limit for the container or unit (--memory, MemoryMax=)",
        cost=Cost.FREE,
        why="the server needs more memory than its limit allows; its own log cannot show that",
    ),
    *_state(None),
    Remedy(
        change="a smaller -c", cost=Cost.CONTEXT, why="the KV cache grows linearly with the context"
    ),
)
