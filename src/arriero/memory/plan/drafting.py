"""Lines for what drafts: a model of its own, or a context of the model's own NextN layers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from arriero.base.buffers import is_on_host
from arriero.base.words import Component, Method
from arriero.engine.oracle import DryRun
from arriero.gguf import Header
from arriero.launch.builds import AFTER_10435
from arriero.launch.params import EngineParams
from arriero.memory.hparams import Hparams, UnknownArchitectureError, read_hparams
from arriero.memory.placement import CPU, chosen_devices, layer_devices, weights
from arriero.memory.plan.asking import Asking
from arriero.memory.plan.context import ContextSizes
from arriero.memory.plan.inputs import Inputs
from arriero.memory.plan.lines import at_most, line, unknown
from arriero.memory.plan.notes import Notes
from arriero.record import PlanBuffer


@dataclass(frozen=True)
class Drafted:
    """Bytes by device. ``measured`` says that the engine told its part."""

    bytes: dict[str, int]
    measured: bool


def draft_lines(inputs: Inputs, asking: Asking, notes: Notes) -> Iterator[PlanBuffer]:
    """All that drafts on each device, as one."""
    if inputs.launch.draft is None:
        return
    drafted = drafted_at(inputs, inputs.params.n_ctx, asking, notes)
    if drafted is None:
        device = inputs.devices[0] if inputs.devices else CPU
        yield unknown(Component.DRAFT, device, "the draft model's header was not read")
        return
    for device, size in drafted.bytes.items():
        if size and drafted.measured:
            yield line(Component.DRAFT, device, size, Method.MEASURED)
        elif size:
            yield at_most(Component.DRAFT, device, size)


def drafted_at(inputs: Inputs, n_ctx: int, asking: Asking, notes: Notes) -> Drafted | None:
    """What drafts beside a main context of so many tokens; null where neither header nor engine
    tells, or where nothing drafts."""
    params = _params(inputs, n_ctx)
    if params is None:
        return None
    own = inputs.launch.draft_model is not None
    header = inputs.basis.draft if own else inputs.basis.header
    h = _hparams(inputs, header, notes, own=own)
    dry = asking.sizes_of_draft(params) if own else asking.sizes(params)
    if h is None and dry is None:
        return None
    sizes: dict[str, int] = {}
    known = header is not None and h is not None
    for device, size in (
        *(_told(dry, weights=own, known=known) if dry is not None else ()),
        *(
            _computed(inputs, header, h, params, dry)
            if header is not None and h is not None
            else ()
        ),
    ):
        sizes[device] = sizes.get(device, 0) + size
    return Drafted(sizes, measured=dry is not None)


def _params(inputs: Inputs, n_ctx: int) -> EngineParams | None:
    """Builds after 10435 let it follow the main context and devices, whatever fit makes them;
    before, it has the command's own context, or its model's."""
    draft, main = inputs.launch.draft, inputs.launch.params
    if draft is None:
        return None
    follows = inputs.since(AFTER_10435)
    named = main.devices if follows and draft.devices is None else draft.devices
    own = chosen_devices(replace(draft, devices=named), inputs.listed, inputs.integrated)
    return replace(
        draft,
        n_ctx=n_ctx if follows else main.n_ctx,
        devices=own,
        embeddings=draft.embeddings and not follows,
        tensor_split=inputs.params.tensor_split,
    )


def _hparams(inputs: Inputs, header: Header | None, notes: Notes, *, own: bool) -> Hparams | None:
    if header is None:
        return None
    try:
        h = read_hparams(header, inputs.build if own else inputs.rules)
    except UnknownArchitectureError as error:
        notes.add("unknown", f"Draft model: {error.message}")
        return None
    if not own and not h.n_layer_nextn:
        notes.add("unknown", "The model has no NextN layers to draft with.")
    return h


def _told(dry: DryRun, *, weights: bool, known: bool) -> Iterator[tuple[str, int]]:
    """What the engine says; weights on the host only where no formula knows them better."""
    for b in dry.buffers:
        counted = weights and not (known and is_on_host(b.device))
        yield b.device, b.context + b.compute + b.output + b.model * counted


def _computed(
    inputs: Inputs, header: Header, h: Hparams, params: EngineParams, dry: DryRun | None
) -> Iterator[tuple[str, int]]:
    """What the engine does not say."""
    devices = params.devices or ()
    layers = layer_devices(h.n_layer_all, params.n_gpu_layers, devices, params.tensor_split)
    if inputs.launch.draft_model is not None:
        launch = replace(inputs.launch, params=params)
        for buffer in weights(header, h, launch, layers, devices):
            if dry is None or is_on_host(buffer.device):
                yield buffer.device, buffer.bytes
    if dry is None:
        context = ContextSizes(inputs, header, h, params)
        for (_, device), size in context.caches(layers).items():
            yield device, size
        for device, bound in context.compute(layers, params).items():
            yield device, bound.most
