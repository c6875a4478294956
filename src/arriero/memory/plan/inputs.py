"""What a plan is made from: frozen, and the same for every component."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from arriero.base.buffers import HOST
from arriero.gguf import Header, Model
from arriero.launch import Launch
from arriero.launch.params import EngineParams
from arriero.machine import Pool
from arriero.memory.calibration import Calibration
from arriero.memory.hparams import lacks
from arriero.memory.placement import CPU, chosen_devices, host_buffer, layer_devices
from arriero.memory.pools import device_of, integrated


@dataclass(frozen=True, kw_only=True, eq=False)
class Basis:
    """What is the same for every command of one model on one machine.

    The attributes are those of :class:`arriero.memory.planner.Planner`.
    """

    header: Header
    about: Model
    pools: tuple[Pool, ...]
    build: int | None
    calibrations: tuple[Calibration, ...] = ()
    draft: Header | None = None
    mmproj: Header | None = None
    foreign: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class Inputs:
    """One command on that basis.

    ``params`` are the launch's with the devices that it means and, once fit was looked at, with
    what fit makes of them.
    """

    basis: Basis
    launch: Launch
    params: EngineParams
    devices: tuple[str, ...]

    @property
    def build(self) -> int | None:
        return self.basis.build

    @cached_property
    def rules(self) -> int | None:
        """The build whose rules are taken: null, the newest, for what it does not know."""
        return None if lacks(self.basis.header, self.build) else self.build

    @property
    def as_planned(self) -> Launch:
        """The launch with the parameters of this plan."""
        return replace(self.launch, params=self.params)

    def since(self, build: int) -> bool:
        """Whether rules of that build hold; an unknown build is taken for the newest."""
        return self.build is None or self.build >= build

    # devices

    @cached_property
    def listed(self) -> tuple[str, ...]:
        """Every device of the machine."""
        return _listed(self.basis.pools)

    @cached_property
    def integrated(self) -> frozenset[str]:
        return integrated(self.basis.pools)

    @cached_property
    def host_buffer(self) -> str:
        """The buffer type of what devices read from the host."""
        return host_buffer(self.devices) or CPU

    @cached_property
    def margins(self) -> dict[str, int]:
        """What fit would keep free on each device, in bytes."""
        return {name: self.launch.fit_target(i) for i, name in enumerate(self.devices)}

    def free_as_listed(self, device: str) -> int | None:
        """What the engine's own fit reads from the driver, whatever else limits the pool."""
        pool = next((p for p in self.basis.pools if device in p.devices), None)
        if pool is None:
            return None
        return next((one.free for one in pool.listed if one.name == device), pool.free)

    # layers

    @property
    def goes_by_free_memory(self) -> bool:
        """Whether layers are spread by what is free when the engine starts: a guess before."""
        return len(self.devices) > 1 and not any(self.params.tensor_split)

    def layers(self, n_layer_all: int, params: EngineParams | None = None) -> tuple[str, ...]:
        """The device of each layer and, last, of the output layer."""
        params = params or self.params
        split = params.tensor_split
        if not any(split) and len(self.devices) > 1:
            split = tuple(float(self.free_as_listed(device) or 0) for device in self.devices)
        return layer_devices(n_layer_all, params.n_gpu_layers, self.devices, split)


def inputs_of(basis: Basis, launch: Launch) -> Inputs:
    """The inputs of a command's plan.

    Raises:
        UsageError: The command names a device that is not there.
    """
    pools = basis.pools
    devices = chosen_devices(launch.params, _listed(pools), integrated(pools))
    moved = tuple((pattern, device_of(buffer, pools)) for pattern, buffer in launch.overrides)
    params = replace(launch.params, devices=devices, overrides=moved)
    return Inputs(basis=basis, launch=launch, params=params, devices=devices)


def _listed(pools: tuple[Pool, ...]) -> tuple[str, ...]:
    return tuple(name for pool in pools for name in pool.devices if name != HOST)
