"""The facts that a rule may use. They are frozen; reading one starts and contacts nothing.

Most commands need few of them, so the code that computes one is imported on first use.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from arriero.base.buffers import pool_of
from arriero.base.errors import ArrieroError
from arriero.base.words import Component, Method
from arriero.command.place import Around
from arriero.gotchas.missing import MissingError
from arriero.launch.edits import edited

if TYPE_CHECKING:
    from arriero.command import Command
    from arriero.engine import Engine, ListedDevice
    from arriero.engine.devices import Refusal
    from arriero.gguf import Header, Model
    from arriero.launch import Launch
    from arriero.machine import Misfit, Pool
    from arriero.memory.caches import CacheTensor
    from arriero.memory.hparams import Hparams
    from arriero.record import Edit, Plan

Planner = Callable[["Command"], "Plan | None"]


@dataclass(frozen=True)
class Facts:
    """A command and what is known about its engine, model and machine.

    A field is None if nothing is known. The property of the same name raises
    :class:`MissingError` instead: a rule that needs the fact simply uses the property, and
    ``check`` tells the user what was missing.
    """

    command: Command
    build: int | None = None
    """The engine's build, or the one given with ``--assume-build``."""
    engine: Engine | None = None
    header_or_none: Header | None = None
    pools: tuple[Pool, ...] = ()
    devices_or_none: tuple[ListedDevice, ...] | None = None
    """The output of ``--list-devices``; an empty tuple means that there is no device."""
    workers_or_none: Mapping[str, bool] | None = None
    """Endpoint → whether a usable worker answered; None unless ``--probe`` asked."""
    refused: Mapping[str, Refusal] = field(default_factory=dict)
    """Endpoint → how the engine refuses this worker's protocol version."""
    misfit: Misfit | None = None
    """CPU features that the engine needs and the CPU lacks; None if there are none or unknown."""
    projector_or_none: Header | None = None
    """The header of ``--mmproj``."""
    planner: Planner = field(default=lambda _: None, repr=False)
    """Plans a command by formulas alone: no dry run, no start."""
    around: Around = field(default_factory=Around)
    """What a file or a wrapper tells in addition to the command's words."""
    own: bool = False
    """Whether the flag table is that of this very build, not of the nearest known build."""

    @property
    def header(self) -> Header:
        if self.header_or_none is None:
            raise MissingError("the model's header (the file is not here or cannot be read)")
        return self.header_or_none

    @property
    def projector(self) -> Header:
        if self.projector_or_none is None:
            raise MissingError("the projector's header (the file is not here or cannot be read)")
        return self.projector_or_none

    @functools.cached_property
    def model(self) -> Model:
        """The model as its header describes it."""
        header = self.header
        from arriero.gguf import describe

        try:
            return describe(header)
        except ArrieroError as error:
            raise MissingError(f"the model: {error.message}") from None

    @functools.cached_property
    def hparams(self) -> Hparams:
        header = self.header
        from arriero.memory.hparams import read_hparams

        try:
            return read_hparams(header, self.build)
        except ArrieroError as error:
            raise MissingError(f"rules for this model: {error.message}") from None

    @functools.cached_property
    def plan(self) -> Plan:
        """The plan of the command as given, by formulas."""
        return self.plan_of(self.command)

    def plan_of(self, command: Command) -> Plan:
        """The plan of a changed command."""
        _ = self.header
        plan = self.planner(command)
        if plan is None:
            raise MissingError("a plan (the model's header does not say enough)")
        return plan

    @functools.cached_property
    def caches(self) -> tuple[CacheTensor, ...]:
        """Every tensor of KV cache and recurrent state, for the context that the server takes."""
        context = self.plan.context
        from arriero.memory.caches import cache_tensors, refusal

        params = replace(self.launch.params, n_ctx=context.n_ctx if context else 0)
        if why := refusal(self.hparams, params, self.build):
            raise MissingError(f"the caches; the engine will refuse them: {why}")
        return cache_tensors(self.hparams, params, self.build)

    @property
    def elsewhere(self) -> str | None:
        """Why another engine than the known one may run the command; None if it is the same."""
        place = self.around.place
        return place.why if place and not place.devices and not self.own else None

    @property
    def devices(self) -> tuple[ListedDevice, ...]:
        if self.devices_or_none is None:
            if self.around.place is not None:
                raise MissingError(f"the devices, which are unknown here: {self.around.place.why}")
            raise MissingError("the devices (there is no engine here to list them)")
        return self.devices_or_none

    @functools.cached_property
    def launch(self) -> Launch:
        """What the server makes of the command's flags (slots, types, batch, fit, caches)."""
        from arriero.launch import launch_of

        trained = (self.model.n_ctx_train or 0) if self.header_or_none is not None else 0
        path = Path(self.command.model_path() or "model.gguf")
        return launch_of(self.command, path, n_ctx_train=trained, build=self.build)

    def typed(self, flag: str) -> str:
        """A flag with its value as the command has it, for the text of a finding."""
        return f"{flag} {self.command.value(flag)}"

    def with_edits(self, edits: tuple[Edit, ...]) -> Facts:
        """The same facts about the changed command.

        Raises:
            UsageError: The engine has no such flag.
        """
        return replace(self, command=edited(self.command, edits))

    def has_room(self, edits: tuple[Edit, ...]) -> bool:
        """Whether every pool of known size holds the plan of the changed command.

        Raises:
            UsageError: The engine has no such flag.
        """
        pools = self.plan_of(self.with_edits(edits).command).pools
        return all(p.free is None or p.planned + p.margin <= p.free for p in pools)


def bytes_of(plan: Plan, *components: Component) -> int:
    """Bytes planned for these components on all devices; unknown lines count as 0."""
    return sum(b.bytes or 0 for b in plan.buffers if b.component in components)


def certain(plan: Plan, pool: str) -> int:
    """Bytes that a pool must hold at the start in any case: only exact and measured lines.

    Mapped weights do not count: the kernel can drop their pages.
    """
    growing = (Component.PROMPT_CACHE, Component.CHECKPOINTS)
    return sum(
        buffer.bytes or 0
        for buffer in plan.buffers
        if is_in(buffer.device, plan, pool)
        and buffer.method in (Method.EXACT, Method.MEASURED)
        and not buffer.upper_bound
        and buffer.component not in growing
        and not buffer.device.endswith("_Mapped")
    )


def is_in(buffer: str, plan: Plan, pool: str) -> bool:
    """Whether a buffer's memory comes from the pool of that name."""
    found = pool_of(buffer, plan.pools)
    return found is not None and found.name == pool
