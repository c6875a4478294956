"""Lines for the compute buffers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from arriero.base.words import Component, Method
from arriero.engine.oracle import DryRun
from arriero.memory.hparams import Hparams
from arriero.memory.plan.context import ContextSizes
from arriero.memory.plan.inputs import Inputs
from arriero.memory.plan.lines import bounded, line
from arriero.record import PlanBuffer


def compute_lines(
    context: ContextSizes, layers: Sequence[str], dry: DryRun | None
) -> Iterator[PlanBuffer]:
    """The engine's own figures, else bounds."""
    inputs, component = context.inputs, Component.COMPUTE
    if dry is None:
        for device, size in context.compute(layers, inputs.params).items():
            yield bounded(component, device, size)
        return
    doubt = _doubt(inputs, context.hparams)
    method = Method.ESTIMATED if doubt else Method.MEASURED
    for b in dry.buffers:
        if b.compute:
            yield line(
                component, b.device, b.compute, method, upper_bound=bool(doubt), reason=doubt
            )


def _doubt(inputs: Inputs, h: Hparams) -> str:
    """Why a dry run's compute may not be what a start takes; empty if nothing speaks for it."""
    if inputs.devices and not inputs.params.offload_kqv and any(h.is_recurrent):
        # build 10434, hybrid on Vulkan: 42.00 MiB by the engine's own dry run, 3.82 then
        return "with -nkvo a dry run and a start differ for recurrent layers"
    return ""
