"""Lines for the KV cache, recurrent state and the output buffer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from arriero.base.words import Component
from arriero.engine.oracle import DryRun
from arriero.memory.caches import (
    builds_around,
    cache_tensors,
    is_doubtful,
    output_bytes,
    total,
)
from arriero.memory.hparams import Hparams, read_hparams
from arriero.memory.placement import CPU, host_buffer
from arriero.memory.plan.compared import compared
from arriero.memory.plan.context import ContextSizes, Place, placed
from arriero.memory.plan.inputs import Inputs
from arriero.memory.plan.notes import Notes
from arriero.record import PlanBuffer


def cache_lines(
    context: ContextSizes, layers: Sequence[str], dry: DryRun | None, notes: Notes
) -> Iterator[PlanBuffer]:
    """Both kinds on each device. Between two builds seen, the most that either would take."""
    inputs, told = context.inputs, None
    if dry is not None:
        told = {(Component.KV, b.device): b.kv for b in dry.buffers}
        told |= {(Component.RS, b.device): b.rs for b in dry.buffers}
    doubtful = is_doubtful(inputs.basis.header, inputs.params, inputs.rules)
    formula = context.caches(layers)
    if doubtful:
        notes.add(
            "between_builds",
            f"A rule for this model changed in a build near {inputs.build}. Which one is unknown, "
            "so the larger size is planned.",
        )
        formula = _most(inputs, layers)
    guessed = inputs.goes_by_free_memory
    yield from compared(formula, told, notes, guessed=guessed, doubtful=doubtful)


def _most(inputs: Inputs, layers: Sequence[str]) -> dict[Place, int]:
    header, params = inputs.basis.header, inputs.params
    tensors = max(
        (
            cache_tensors(read_hparams(header, seen), params, seen)
            for seen in builds_around(inputs.rules)
        ),
        key=total,
    )
    return placed(tensors, layers, params)


def output_lines(
    inputs: Inputs, h: Hparams, layers: Sequence[str], dry: DryRun | None, notes: Notes
) -> Iterator[PlanBuffer]:
    """Logits, on the host beside the device of the output layer."""
    device = host_buffer([layers[-1]]) or CPU
    told = None
    if dry is not None:
        told = {(Component.OUTPUT, b.device): b.output for b in dry.buffers}
    formula = {(Component.OUTPUT, device): output_bytes(h, inputs.params)}
    yield from compared(formula, told, notes, guessed=inputs.goes_by_free_memory)
