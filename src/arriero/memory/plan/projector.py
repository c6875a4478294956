"""Lines for a multimodal projector (``--mmproj``): its weights, its compute, what an image adds.

Sources: ``tools/mtmd/clip.cpp`` and ``tools/server/server-context.cpp`` of builds 10068, 10435 and
11434.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from typing import Final

from arriero.base.sizes import human
from arriero.base.words import Component, Method
from arriero.engine.oracle import ProjectorBuffer, ProjectorRun
from arriero.gguf import Header
from arriero.launch.context import pad
from arriero.launch.params import ProjectorParams
from arriero.memory.caches import CPU_ALIGNMENT
from arriero.memory.placement import CPU
from arriero.memory.plan.asking import Asking
from arriero.memory.plan.inputs import Inputs
from arriero.memory.plan.lines import line, unknown
from arriero.memory.plan.notes import Notes
from arriero.record import PlanBuffer

_COMPONENT: Final = Component.MMPROJ
_ONE_SIZE: Final = frozenset({"gemma3"})
"""Kinds that scale every image to the size of the warm-up and encode one at a time."""
TOKENS: Final = {
    "pixtral": (1024, 256),
    "kimivl": (1024, 256),
    "qwen2vl_merger": (4096, 46 * 46),
    "qwen2.5vl_merger": (4096, 46 * 46),
    "qwen3vl_merger": (4096, 46 * 46),
    "glm4v": (4096, 46 * 46),
}
"""Kinds that take as many tokens as an image is large, one image at a time: the most by default,
and those of the warm-up."""
_MASKED: Final = frozenset({"qwen2.5vl_merger"})
"""Its mask has a row of every patch for every patch, with flash attention too."""
_LOADED_WHOLE: Final = _ONE_SIZE | {"pixtral"}
"""Kinds of which every tensor was seen to be loaded."""


def lines_of_projector(inputs: Inputs, asking: Asking, notes: Notes) -> Iterator[PlanBuffer]:
    """By the engine's own account, where it has the device that is planned for."""
    params, mmproj = inputs.launch.projector, inputs.basis.mmproj
    if params is None:
        return
    place = _place(inputs, params)
    kept = inputs.margins.get(place)
    margin = human(kept) if kept else ""
    yield from projector_lines(params, mmproj, _asked(inputs, asking), place, margin)


def share_of_projector(inputs: Inputs, asking: Asking, notes: Notes) -> dict[int, int]:
    """Bytes that ``--fit`` adds to its targets, by the place of the target.

    Where no engine tells, weights alone.
    """
    params, mmproj = inputs.launch.projector, inputs.basis.mmproj
    if params is None:
        return {}
    run = _asked(inputs, asking)
    if run is None:
        notes.add(
            "fit",
            "--fit also leaves room for the projector's compute buffer; its size is unknown here.",
        )
        size = sum(t.bytes for t in mmproj.tensors) if mmproj is not None else 0
        buffer = ProjectorBuffer(_place(inputs, params), size, size, 0)
        run = ProjectorRun((buffer,), flash_attn=False)
    return share_of_fit(params, run, inputs.listed)


def _place(inputs: Inputs, params: ProjectorParams) -> str:
    return device_of_projector(params, inputs.listed, inputs.integrated)


def _asked(inputs: Inputs, asking: Asking) -> ProjectorRun | None:
    params = inputs.launch.projector
    if params is None or inputs.basis.mmproj is None:
        return None
    place = _place(inputs, params)
    run = None if place.startswith("RPC") else asking.projector(params)
    there = run is not None and any(b.device == place and b.model for b in run.buffers)
    return run if there else None


def device_of_projector(
    request: ProjectorParams, listed: Sequence[str], integrated: Set[str]
) -> str:
    """The first device that is no part of the processor, else the first one; a worker is one."""
    if not request.use_gpu:
        return CPU
    if request.device in (CPU, *listed):
        return request.device
    return next((name for name in listed if name not in integrated), next(iter(listed), CPU))


def share_of_fit(
    request: ProjectorParams, run: ProjectorRun, listed: Sequence[str]
) -> dict[int, int]:
    """Bytes that ``--fit`` adds to its targets, by the place of the target.

    Without a warm-up it counts no compute.

    The engine counts its devices in the order of their backends, workers after the CPU, and takes
    that number for the place of a device among those of the model: with ``-dev``, or with workers
    alone, it is another one's, or none's.
    """
    local = [name for name in listed if not name.startswith("RPC")]
    order = [*local, CPU, *(name for name in listed if name not in local)]
    return {
        order.index(b.device): b.tensors + b.compute * request.warmup
        for b in run.buffers
        if b.device in order
    }


def projector_lines(
    request: ProjectorParams,
    header: Header | None,
    run: ProjectorRun | None,
    device: str,
    margin: str,
) -> Iterator[PlanBuffer]:
    """Weights, compute of the warm-up, and what a larger image takes beyond it.

    Args:
        run: The engine's own account, for ``device``; null where there is none.
        margin: What the device keeps free for what is unknown, in words; empty if nothing.
    """
    kind, kept = kind_of(header), f"; margin {margin}" if margin else ""
    size = None
    if header is not None:
        size = sum(pad(t.bytes, CPU_ALIGNMENT) for t in header.tensors)
    if run is None:
        if size is not None:
            whole = kind in _LOADED_WHOLE
            method = Method.EXACT if whole else Method.ESTIMATED
            yield line(_COMPONENT, device, size, method, upper_bound=not whole)
        reason = f"without an engine its compute buffer is unknown{kept}"
        yield unknown(_COMPONENT, device, reason)
        return
    growth = _growth(kind, request, run)
    for buffer in run.buffers:
        if buffer.model:
            method = Method.EXACT if buffer.model == size else Method.MEASURED
            yield line(_COMPONENT, buffer.device, buffer.model, method)
        if buffer.compute:
            reason = "compute for the warm-up image"
            yield line(_COMPONENT, buffer.device, buffer.compute, Method.MEASURED, reason=reason)
        if buffer.compute and growth:
            more, tokens = growth
            reason = f"compute for an image of up to {tokens} tokens, beyond the warm-up image"
            beyond = -(-buffer.compute * more[0] // more[1])
            yield line(
                _COMPONENT, buffer.device, beyond, Method.ESTIMATED, upper_bound=True, reason=reason
            )
    if growth is None:
        reason = f"larger images than the warm-up image, or several, take more{kept}"
        yield unknown(_COMPONENT, device, reason)


def kind_of(header: Header | None) -> str:
    """``clip.projector_type``; empty where it is not known."""
    metadata = header.metadata if header is not None else {}
    keys = ("clip.projector_type", "clip.vision.projector_type")
    return next((str(metadata[key]) for key in keys if key in metadata), "")


def _growth(
    kind: str, request: ProjectorParams, run: ProjectorRun
) -> tuple[tuple[int, int], int] | tuple[()] | None:
    """The most compute beyond the warm-up's, as a fraction of that, and the tokens of an image.

    Empty where nothing grows, null where nobody can say. Without flash attention every patch has a
    score for every other one.
    """
    if kind in _ONE_SIZE:
        return ()
    if kind not in TOKENS:
        return None
    most, warm = TOKENS[kind]
    if request.image_max_tokens > 0:
        most = request.image_max_tokens
    if most <= warm:
        return ()
    power = 1 if run.flash_attn and kind not in _MASKED else 2
    return (most**power - warm**power, warm**power), most
