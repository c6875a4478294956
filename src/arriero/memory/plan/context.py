"""The sizes of one context by formulas: of the model, of what fit tries, of what drafts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from arriero.base.words import Component
from arriero.gguf import Header
from arriero.launch.builds import AFTER_10435
from arriero.launch.params import EngineParams
from arriero.machine.pools import SOFTWARE
from arriero.memory.caches import CacheTensor, Effective, cache_tensors, effective
from arriero.memory.compute import Bound, ComputeBound, Site
from arriero.memory.hparams import Hparams
from arriero.memory.placement import CPU
from arriero.memory.plan.inputs import Inputs

Place = tuple[Component, str]


@dataclass(frozen=True, eq=False)
class ContextSizes:
    """Caches and compute of a context, wherever its layers go."""

    inputs: Inputs
    header: Header
    hparams: Hparams
    params: EngineParams

    @cached_property
    def tensors(self) -> tuple[CacheTensor, ...]:
        return cache_tensors(self.hparams, self.params, self.inputs.rules)

    @cached_property
    def effective(self) -> Effective:
        return effective(self.hparams, self.params, self.inputs.rules)

    def caches(self, layers: Sequence[str]) -> dict[Place, int]:
        """Bytes of KV and recurrent state by device."""
        return placed(self.tensors, layers, self.params)

    def compute(self, layers: Sequence[str], params: EngineParams) -> dict[str, Bound]:
        """What compute buffers stay below, by device or buffer type of the host."""
        bounds = self._compute.of(_site(self.inputs, layers, params))
        host = self.inputs.host_buffer
        return {host if device == CPU else device: size for device, size in bounds.items()}

    @cached_property
    def _compute(self) -> ComputeBound:
        inputs = self.inputs
        return ComputeBound(
            self.header,
            self.hparams,
            self.params,
            self.effective,
            self.tensors,
            pipeline=_is_pipelined(inputs, self.hparams, self.params),
            build=None if inputs.basis.foreign else inputs.build,
        )


def placed(
    tensors: Iterable[CacheTensor], layers: Sequence[str], params: EngineParams
) -> dict[Place, int]:
    """Bytes of cache tensors by device."""
    sizes: dict[Place, int] = {}
    for tensor in tensors:
        device = layers[tensor.layer] if params.offload_kqv else CPU
        place = (tensor.component, device)
        sizes[place] = sizes.get(place, 0) + tensor.padded()
    return sizes


def _is_pipelined(inputs: Inputs, h: Hparams, params: EngineParams) -> bool:
    """Whether several devices work on a batch in turns."""
    devices = params.devices or ()
    return (
        len(devices) > 1
        and not 0 <= params.n_gpu_layers <= h.n_layer_all
        and params.split_mode == "layer"
        and params.offload_kqv
        and not params.overrides
        # workers take part in it since a build after 10435
        and (inputs.since(AFTER_10435) or not any(name.startswith("RPC") for name in devices))
    )


def _site(inputs: Inputs, layers: Sequence[str], params: EngineParams) -> Site:
    """Where layers, the weights of some of them, and the output layer are computed."""
    devices = tuple(device for device in dict.fromkeys(layers) if device != CPU)
    moved = any(buffer.startswith(CPU) for _, buffer in params.overrides)
    return Site(
        devices=devices or (params.devices or ())[: int(params.op_offload)],
        output=layers[-1] if layers[-1] != CPU else "",
        on_host=CPU in layers[:-1] or not params.offload_kqv,
        experts_on_host=moved and bool(devices),
        software=any(
            SOFTWARE.search(one.description)
            for pool in inputs.basis.pools
            for one in pool.listed
            if one.name in inputs.devices
        ),
    )
