"""Lines for the weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from arriero.base.buffers import is_on_host
from arriero.base.words import Component, Method
from arriero.engine.oracle import DryRun
from arriero.memory.hparams import Hparams
from arriero.memory.placement import (
    CPU,
    MAPPED,
    REPACKED,
    Quirks,
    WeightBuffer,
    quirks_of,
    repacked_types,
    weights,
)
from arriero.memory.plan.compared import note_drift
from arriero.memory.plan.inputs import Inputs
from arriero.memory.plan.lines import at_most, line, unknown
from arriero.memory.plan.notes import Notes
from arriero.record import PlanBuffer

_COMPONENT = Component.WEIGHTS


def weight_lines(
    inputs: Inputs, h: Hparams, layers: Sequence[str], dry: DryRun | None, notes: Notes
) -> Iterator[PlanBuffer]:
    """What each device and the host hold, by the formula as far as the engine agrees with it."""
    header, launch, devices = inputs.basis.header, inputs.as_planned, inputs.devices
    if not header.tensors:
        yield unknown(_COMPONENT, MAPPED, "the file has no tensors")
        return
    told = {b.device: b.model for b in dry.buffers if b.model} if dry is not None else None
    quirks, types = None, None
    if told is not None and devices:
        quirks = quirks_of(header, h, launch, layers, devices, told)
    agrees = told is None or not devices or quirks is not None
    if told is not None and (copied := told.get(REPACKED)):
        types = repacked_types(header, h, launch, layers, devices, copied)
    if types is not None:
        quirks = replace(quirks or Quirks(), repacked=types)
    buffers = weights(header, h, launch, layers, devices, quirks)
    mode = inputs.params.split_mode
    if mode in ("row", "tensor") and devices:
        notes.add("placement", f"Sizes assume -sm layer; they were never checked for -sm {mode}.")
        buffers = tuple(replace(buffer, exact=False) for buffer in buffers)
    for buffer in buffers if types is not None else _with_copies(buffers, told):
        if agrees or told is None or is_on_host(buffer.device):
            known = agrees and (told is not None or not inputs.goes_by_free_memory)
            yield _planned(buffer, known=known)
        else:
            measured = told.get(buffer.device, 0)
            if not inputs.goes_by_free_memory:
                note_drift(notes, _COMPONENT, buffer.device, buffer.bytes, measured)
            yield line(_COMPONENT, buffer.device, measured, Method.MEASURED)


def _planned(buffer: WeightBuffer, *, known: bool) -> PlanBuffer:
    if buffer.exact and known:
        return line(_COMPONENT, buffer.device, buffer.bytes, Method.EXACT)
    return at_most(_COMPONENT, buffer.device, buffer.bytes)


def _with_copies(
    planned: Sequence[WeightBuffer], told: Mapping[str, int] | None
) -> Iterator[WeightBuffer]:
    """What this CPU keeps in a layout of its own is known to its engine alone."""
    if told is None:
        yield from planned
        return
    copied = told.get(REPACKED, 0)
    for buffer in planned:
        if buffer.device == REPACKED:
            continue
        if buffer.device == CPU and copied:
            yield WeightBuffer(CPU, told.get(CPU, 0))
        elif buffer.device == MAPPED and copied:
            # copied tensors leave the plain buffer, which may shrink at its ends
            yield WeightBuffer(MAPPED, buffer.bytes, exact=False)
        else:
            yield buffer
    if copied:
        yield WeightBuffer(REPACKED, copied)
