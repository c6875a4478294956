"""The budget: one line per component and device, with its method, and whether pools hold it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import msgspec

from arriero.base.buffers import pool_of
from arriero.base.words import Component
from arriero.engine.oracle import DryRun
from arriero.launch import Launch
from arriero.memory.caches import refusal
from arriero.memory.calibration import corrected
from arriero.memory.dry_runs import Answers
from arriero.memory.hparams import Hparams, UnknownArchitectureError, lacks, read_hparams
from arriero.memory.placement import cuts_rows
from arriero.memory.plan.asking import Asking
from arriero.memory.plan.caches import cache_lines, output_lines
from arriero.memory.plan.compute import compute_lines
from arriero.memory.plan.context import ContextSizes
from arriero.memory.plan.cuda import cuda_terms
from arriero.memory.plan.drafting import draft_lines
from arriero.memory.plan.fitting import with_fit
from arriero.memory.plan.growth import growth_of
from arriero.memory.plan.host import host_lines, kept_checkpoints
from arriero.memory.plan.inputs import Basis, Inputs, inputs_of
from arriero.memory.plan.notes import Notes
from arriero.memory.plan.projector import lines_of_projector
from arriero.memory.plan.unknown import unknown_lines
from arriero.memory.plan.weights import weight_lines
from arriero.memory.plan.workspace import workspace_lines
from arriero.memory.pools import all_fit, all_start, any_outgrows, placed, planned_pools
from arriero.memory.taken import run_settings
from arriero.record import ModelRecord, Plan, PlanBuffer, PlanContext, PlanPool

_SPREAD: Final = frozenset({Component.WEIGHTS, Component.KV, Component.RS})


def budget(basis: Basis, launch: Launch, reserved: int, answers: Answers | None) -> Plan:
    """What a launch will take and whether the pools hold it.

    Args:
        reserved: Address space of threads and libraries, in bytes.
        answers: What the engine says of sizes; null where formulas alone decide. Where it has no
            answer, a note says why.

    Raises:
        ModelError: The header is one that llama.cpp would refuse.
        UsageError: The launch names a device that is not there, or a pattern that is none.
    """
    notes = Notes()
    asking = Asking(answers, notes)
    inputs = inputs_of(basis, launch)
    h = _hparams(inputs, notes)
    refused, dry = _refusal(inputs, h), None
    if refused:
        notes.add("refused", f"The engine will refuse these settings: {refused}.")
    else:
        inputs = with_fit(inputs, h, asking, notes) if h is not None else inputs
        dry = asking.sizes(inputs.params)
        _say_what_it_lacks(inputs, _lacks(inputs, asking, dry), notes)
    context = ContextSizes(inputs, basis.header, h, inputs.params) if h is not None else None
    lines = [] if refused else list(_lines(inputs, context, dry, notes))
    lines = _all_lines(inputs, lines, asking, notes)
    pools = _pools(inputs, None if refused else context, lines, reserved)
    lacking = True if refused else _lacks(inputs, asking, dry)
    fits = False if lacking else all_fit(pools)
    return Plan(
        model=ModelRecord.of(str(inputs.params.model), basis.about),
        context=_context(inputs, context, dry),
        buffers=placed(lines, pools),
        pools=pools,
        fits=None if fits and lacking is None else fits,
        starts=False if lacking else all_start(pools),
        outgrows=any_outgrows(pools),
        notes=tuple(notes),
        build=basis.build,
    )


# --- what is known ------------------------------------------------------------------------------


def _hparams(inputs: Inputs, notes: Notes) -> Hparams | None:
    try:
        return read_hparams(inputs.basis.header, inputs.rules)
    except UnknownArchitectureError as error:
        notes.add("unknown", error.message)
        return None


def _refusal(inputs: Inputs, h: Hparams | None) -> str | None:
    """Why the engine would not start with these settings; null if nothing speaks against it."""
    params, build = inputs.params, inputs.build
    whole = [name for name in inputs.devices if not cuts_rows(name, build)]
    if params.split_mode == "row" and whole and params.n_gpu_layers:
        return f"{whole[0]} cannot split tensors by rows (-sm row)"
    return refusal(h, params, build) if h is not None else None


def _lacks(inputs: Inputs, asking: Asking, dry: DryRun | None) -> bool | None:
    """Whether the build does not know the architecture; null where nobody can say.

    An engine that answers knows it, whatever its build is said to know.
    """
    if asking.knows_model is False:
        return True
    return False if dry is not None else lacks(inputs.basis.header, inputs.build)


def _say_what_it_lacks(inputs: Inputs, lacking: bool | None, notes: Notes) -> None:
    build = "this engine" if inputs.build is None else f"b{inputs.build}"
    subject = build[0].upper() + build[1:] if inputs.build is None else build
    about, known = inputs.basis.about.arch, lacks(inputs.basis.header, None) is False
    if lacking:
        text = f"{subject} does not know {about} and will refuse this model."
        notes.add("refused", text + " Sizes follow the rules of newer builds." * known)
    elif lacking is None and known:
        notes.add("between_builds", f"It is unknown whether {build} knows {about}.")


# --- lines --------------------------------------------------------------------------------------


def _lines(
    inputs: Inputs, context: ContextSizes | None, dry: DryRun | None, notes: Notes
) -> Iterator[PlanBuffer]:
    """What the model itself takes."""
    if context is None:
        yield from unknown_lines(inputs, dry)
        return
    h = context.hparams
    layers = inputs.layers(h.n_layer_all)
    if inputs.goes_by_free_memory:
        notes.add(
            "placement",
            "Without -ts, layers are spread by the free memory that drivers report at the start.",
        )
    yield from weight_lines(inputs, h, layers, dry, notes)
    yield from cache_lines(context, layers, dry, notes)
    yield from compute_lines(context, layers, dry)
    yield from output_lines(inputs, h, layers, dry, notes)
    yield from host_lines(context, dry)
    yield from workspace_lines(context, layers)


def _all_lines(
    inputs: Inputs, lines: list[PlanBuffer], asking: Asking, notes: Notes
) -> list[PlanBuffer]:
    """With what is loaded beside the model, as earlier runs took it, backends' own memory last."""
    every = [
        *lines,
        *draft_lines(inputs, asking, notes),
        *lines_of_projector(inputs, asking, notes),
    ]
    every = _corrected(inputs, every, notes)
    every[0:0] = cuda_terms(every, inputs.basis.pools)
    return sorted(every, key=lambda line: line.component is Component.POOL)


def _corrected(inputs: Inputs, lines: list[PlanBuffer], notes: Notes) -> list[PlanBuffer]:
    basis = inputs.basis
    if not basis.calibrations:
        return lines
    as_named = replace(inputs.params, devices=inputs.launch.params.devices)
    own = run_settings(basis.about, replace(inputs.launch, params=as_named), basis.pools)
    found, said = corrected(lines, basis.calibrations, own)
    notes.extend(said)
    return list(found)


# --- pools --------------------------------------------------------------------------------------


def _pools(
    inputs: Inputs, context: ContextSizes | None, lines: Sequence[PlanBuffer], reserved: int
) -> tuple[PlanPool, ...]:
    grows = tuple(growth_of(context, lines)) if context is not None else ()
    pools = planned_pools(inputs.basis.pools, lines, inputs.margins, reserved, grows)
    if context is not None and inputs.goes_by_free_memory:
        return _overfull(inputs, pools, lines)
    return pools


def _overfull(
    inputs: Inputs, pools: tuple[PlanPool, ...], lines: Sequence[PlanBuffer]
) -> tuple[PlanPool, ...]:
    """Where nobody can say how layers are spread: too much for all devices is too much for those
    that look too full."""
    spread = {pool.name: 0 for pool in pools if {*pool.devices} & {*inputs.devices}}
    free = [pool.free for pool in pools if pool.name in spread]
    if None in free:
        return pools
    for b in lines:
        pool = pool_of(b.device, pools)
        if pool is not None and pool.name in spread and b.component in _SPREAD:
            spread[pool.name] += b.bytes or 0
    if sum(spread.values()) <= sum(size or 0 for size in free):
        return pools
    return tuple(
        msgspec.structs.replace(pool, surely=spread[pool.name], starts=False, fits=False)
        if pool.usable and spread.get(pool.name, 0) > (pool.free or 0)
        else pool
        for pool in pools
    )


# --- the document -------------------------------------------------------------------------------


def _context(
    inputs: Inputs, context: ContextSizes | None, dry: DryRun | None
) -> PlanContext | None:
    """The context that the engine will make, as it says itself or by its rules."""
    unified, asked = inputs.params.kv_unified, inputs.launch.context_asked or None
    given, kept = inputs.launch.slots.given, kept_checkpoints(inputs.launch)
    if dry is not None:
        return PlanContext(
            n_ctx=dry.n_ctx,
            n_ctx_seq=dry.n_ctx_seq,
            n_seq_max=dry.n_seq_max,
            kv_unified=unified,
            n_rs_seq=dry.n_rs_seq,
            n_ubatch=dry.n_ubatch,
            asked=asked,
            slots_given=given,
            checkpoints=kept,
        )
    if context is None:
        return None
    eff = context.effective
    return PlanContext(
        n_ctx=eff.context.n_ctx,
        n_ctx_seq=eff.context.n_ctx_seq,
        n_seq_max=eff.context.n_seq_max,
        kv_unified=unified,
        n_rs_seq=eff.n_rs_seq,
        n_ubatch=eff.n_ubatch,
        asked=asked,
        slots_given=given,
        checkpoints=kept,
    )
