"""What ``--fit`` makes of the context and of where layers go, and what to say of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from arriero.base.buffers import HOST, is_on_host
from arriero.launch.builds import AFTER_10435
from arriero.launch.context import PAD
from arriero.launch.params import EngineParams
from arriero.memory.fit import Measure, Placement, Setup, Used, fitted, said_of_fit
from arriero.memory.hparams import Hparams
from arriero.memory.placement import REPACKED, weights
from arriero.memory.plan.asking import Asking
from arriero.memory.plan.context import ContextSizes
from arriero.memory.plan.drafting import drafted_at
from arriero.memory.plan.inputs import Inputs
from arriero.memory.plan.notes import Notes
from arriero.memory.plan.projector import share_of_projector

_CEILING: Final = 2_000_000
"""Tensors times layers; a model of 235B has 1,128 times 94, and its fit takes 0.1 s."""


def with_fit(inputs: Inputs, h: Hparams, asking: Asking, notes: Notes) -> Inputs:
    """The inputs with the context and placement that the engine's fit would take."""
    launch = inputs.launch
    if not launch.fit:
        return inputs
    if inputs.params.split_mode == "tensor":
        notes.add(
            "fit", "--fit does not support -sm tensor: it gives up, and the start goes on as asked."
        )
        return inputs
    if len(inputs.basis.header.tensors) * h.n_layer_all > _CEILING:
        notes.add("fit", "Cannot predict --fit: the header is too large.")
        return inputs
    setup = _setup(inputs, h, asking, notes)
    found = fitted(setup, _measure(inputs, h, asking, notes)) if setup is not None else None
    if setup is None or found is None:
        what = "the free device memory" if inputs.devices else "the memory of the host"
        notes.add("fit", f"Cannot predict --fit: {what} is unknown.")
        return inputs
    text = said_of_fit(setup, found, context_given=launch.context_given)
    if text:
        notes.add("fit", text)
    return replace(inputs, params=_placed(inputs.params, found.n_ctx, found.placement))


def _setup(inputs: Inputs, h: Hparams, asking: Asking, notes: Notes) -> Setup | None:
    launch, params = inputs.launch, inputs.params
    per_slot = not params.kv_unified and inputs.since(AFTER_10435)
    slots = params.n_seq_max if per_slot else 1
    most = params.n_ctx or h.n_ctx_train * slots
    free = [inputs.free_as_listed(device) for device in inputs.devices] or [_host_total(inputs)]
    known = tuple(size for size in free if size is not None)
    if len(known) < len(free):
        return None
    return Setup(
        devices=inputs.devices,
        free=known,
        targets=_targets(inputs, len(free), asking, notes),
        most=most,
        least=most if launch.context_given else min(most, launch.fit_ctx * slots),
        step=PAD * slots,
        n_layer=h.n_layer_all if params.load_mtp else h.n_layer,
        has_experts=_number_of(inputs, h, "expert_count") > 0,
        fixed=launch.fixed_for_fit(len(inputs.devices)),
    )


def _host_total(inputs: Inputs) -> int | None:
    """The engine compares with all RAM, free or not, where it has no device."""
    pool = next((p for p in inputs.basis.pools if HOST in p.devices), None)
    return None if pool is None else pool.physical or pool.total


def _number_of(inputs: Inputs, h: Hparams, key: str) -> int:
    value = inputs.basis.header.metadata.get(f"{h.arch}.{key}")
    return value if isinstance(value, int) else 0


def _targets(inputs: Inputs, count: int, asking: Asking, notes: Notes) -> tuple[int, ...]:
    """Builds up to 10435 keep free what drafts as well, at the command's own context."""
    targets = [inputs.launch.fit_target(i) for i in range(count)]
    if not inputs.since(AFTER_10435):
        extra = _drafting(inputs, inputs.launch.params.n_ctx, asking, notes)
        for i, device in enumerate(inputs.devices):
            targets[i] += extra.get(device, 0)
    share = share_of_projector(inputs, asking, notes)
    return tuple(target + share.get(i, 0) for i, target in enumerate(targets))


def _drafting(inputs: Inputs, n_ctx: int, asking: Asking, notes: Notes) -> dict[str, int]:
    drafted = drafted_at(inputs, n_ctx, asking, notes)
    return drafted.bytes if drafted is not None else {}


def _placed(params: EngineParams, n_ctx: int, placement: Placement | None) -> EngineParams:
    params = replace(params, n_ctx=n_ctx)
    if placement is None:
        return params
    return replace(
        params,
        n_gpu_layers=placement.n_gpu_layers,
        tensor_split=placement.tensor_split,
        overrides=placement.overrides,
    )


# --- what a context takes -----------------------------------------------------------------------

Sizes = Sequence[tuple[str, int]]
"""Bytes by device or buffer type; one can come several times."""


def _measure(inputs: Inputs, h: Hparams, asking: Asking, notes: Notes) -> Measure:
    """Weights, context and compute as the engine's fit adds them up: no output buffer."""

    contexts: dict[int, ContextSizes] = {}

    def context(params: EngineParams) -> ContextSizes:
        """Fit places layers up to 512 times at one context: the first stands for all of them."""
        if params.n_ctx not in contexts:
            contexts[params.n_ctx] = ContextSizes(inputs, inputs.basis.header, h, params)
        return contexts[params.n_ctx]

    def used(tokens: int, placement: Placement | None) -> Used:
        params = _placed(inputs.params, tokens, placement)
        dry = asking.sizes(params)
        models: Sizes
        rest: Sizes
        if dry is not None:
            models = [(b.device, b.model) for b in dry.buffers]
            rest = [(b.device, b.context + b.compute) for b in dry.buffers]
        else:
            models, rest = _by_formulas(inputs, h, params, context(params))
        if inputs.since(AFTER_10435):
            rest = [*rest, *_drafting(inputs, tokens, asking, notes).items()]
        return _summed(inputs, models, rest)

    return used


def _by_formulas(
    inputs: Inputs, h: Hparams, params: EngineParams, context: ContextSizes
) -> tuple[Sizes, Sizes]:
    launch = replace(inputs.launch, params=params, mmap=False)
    layers = inputs.layers(h.n_layer_all, params)
    shares = weights(inputs.basis.header, h, launch, layers, inputs.devices)
    models = [(b.device, b.bytes) for b in shares if b.device != REPACKED]
    rest = [(device, size) for (_, device), size in context.caches(layers).items()]
    rest += [(device, b.most) for device, b in context.compute(layers, params).items()]
    return models, rest


def _summed(inputs: Inputs, models: Sizes, rest: Sizes) -> Used:
    """By device; without any, of the host."""
    every, devices = [*models, *rest], inputs.devices
    if not devices:
        return Used((sum(n for name, n in every if name != REPACKED and is_on_host(name)),))
    return Used(
        tuple(sum(n for name, n in every if name == device) for device in devices),
        sum(n for name, n in models if name in devices),
    )
