"""Lines for a model whose architecture has no rules here."""

from __future__ import annotations

from collections.abc import Iterator

from arriero.base.words import Component, Method
from arriero.engine.oracle import DryRun
from arriero.launch.context import pad
from arriero.memory.placement import CPU, MAPPED
from arriero.memory.plan.inputs import Inputs
from arriero.memory.plan.lines import at_most, growing, line, unknown
from arriero.record import PlanBuffer

_PARTS = (Component.KV, Component.RS, Component.COMPUTE, Component.OUTPUT)
_WHY = "unknown architecture"


def unknown_lines(inputs: Inputs, dry: DryRun | None) -> Iterator[PlanBuffer]:
    """The sum of the weights, and everything else from the engine alone."""
    yield from _weights(inputs)
    if dry is None:
        for component in _PARTS:
            yield unknown(component, CPU, _WHY)
        return
    for b in dry.buffers:
        for component, size in zip(_PARTS, (b.kv, b.rs, b.compute, b.output), strict=True):
            if size:
                yield line(component, b.device, size, Method.MEASURED)
    yield at_most(Component.GRAPH, CPU, dry.address_space_delta, Method.MEASURED)
    if inputs.launch.cache_ram:
        yield growing(Component.PROMPT_CACHE, CPU, inputs.launch.cache_ram, Method.EXACT)
    yield growing(Component.CHECKPOINTS, CPU, None, Method.UNKNOWN, _WHY)


def _weights(inputs: Inputs) -> Iterator[PlanBuffer]:
    size = sum(pad(tensor.bytes) for tensor in inputs.basis.header.tensors)
    if not size:
        yield unknown(Component.WEIGHTS, MAPPED, "the file has no tensors")
    elif inputs.devices:
        reason = f"{size} bytes in all; their devices are unknown for this architecture"
        yield unknown(Component.WEIGHTS, inputs.devices[0], reason)
    else:
        yield at_most(Component.WEIGHTS, MAPPED if inputs.launch.mmap else CPU, size)
