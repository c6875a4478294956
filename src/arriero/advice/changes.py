"""Changes to a command, each with what it costs the user, and which failures they are a cure for.

They are ranked by :class:`arriero.base.words.Cost`: free memory first, what the model computes
last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from arriero.advice.caches import HostCaches
from arriero.base.buffers import is_on_host
from arriero.base.sizes import MIB
from arriero.base.words import Component, Cost, Kind
from arriero.command import Command
from arriero.launch import edits, launch_of
from arriero.logs.model import Failure


@dataclass(frozen=True)
class Change:
    """One thing to change.

    ``settings`` maps flags to their new values (null: take the flag away); ``env`` is set in the
    engine's environment. ``title`` says it in a few words, ``why`` in one line.
    """

    title: str
    cost: Cost
    why: str
    settings: Mapping[str, str | None] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)

    def apply(self, command: Command) -> Command:
        """The command with this change and no other."""
        return edits.with_settings(command, self.settings)

    def difference(self, command: Command) -> dict[str, tuple[Any, Any]]:
        """Flag → (value in force before, value after), for what this changes in the command."""
        return {
            flag: (_plain(command.value(flag)), _plain(value))
            for flag, value in self.settings.items()
            if command.value(flag) != value
        }


def _plain(value: str | None) -> Any:
    return int(value) if value is not None and value.lstrip("-").isdigit() else value


ARENAS: Final = Change(
    "MALLOC_ARENA_MAX=1",
    Cost.FREE,
    "without it every HTTP thread reserves 64 MiB of address space, which this limit counts",
    env={"MALLOC_ARENA_MAX": "1"},
)


def slots(count: int, *, unified: bool, command: Command) -> Change:
    """That many slots, in that KV layout."""
    return Change(
        f"{count} slot{'s' if count != 1 else ''}",
        Cost.CONCURRENCY,
        "recurrent state, checkpoints and part of the compute buffer are per slot",
        edits.slots(command, count, unified=unified),
    )


def context(tokens: int) -> Change:
    """A context of that many tokens in all slots together."""
    return Change(
        f"context {tokens}",
        Cost.CONTEXT,
        "the KV cache grows linearly with the context",
        edits.context(tokens),
    )


def caches_off(command: Command) -> Change | None:
    """No saved prompts and no checkpoints; null if there is nothing to turn off."""
    settings = edits.caches_off(command)
    if not settings:
        return None
    return Change(
        "no prompt cache, no checkpoints",
        Cost.PROMPT_REUSE,
        "both grow in host memory with every request; without them, prompts are read again",
        settings,
    )


def caches_bounded(command: Command, caches: HostCaches, room: int, slots: int) -> Change | None:
    """Caches that stay within ``room`` bytes even when full; null if they already do.

    Half of the room goes to checkpoints, the rest to saved prompts, in whole 64 MiB.
    """
    if caches.most is not None and caches.most <= room:
        return None
    settings: dict[str, str | None] = {}
    each = slots * (caches.per_checkpoint or 0)
    taken = caches.checkpoints or 0
    if each and taken > room // 2:
        count = room // 2 // each
        settings["-ctxcp"] = str(count)
        taken = count * each
    if caches.prompt_cache is None or caches.prompt_cache > room - taken:
        settings["-cram"] = str(max(0, room - taken) // (64 * MIB) * 64)
    return Change(
        "smaller prompt cache and fewer checkpoints",
        Cost.PROMPT_REUSE,
        "both grow in host memory with every request, beyond what is free",
        settings,
    )


def remedies(failure: Failure, command: Command, *, n_ubatch: int) -> tuple[Change, ...]:
    """Single changes worth a trial for a failure, cheapest first; slots and context are not here.

    Those two have boundaries of their own, found by the experiment.
    """
    component, found = failure.component, list[Change]()
    on_device = failure.device is not None and not is_on_host(failure.device)
    if (off := caches_off(command)) is not None and _may_be_caches(failure):
        found.append(off)
    launch = launch_of(command)
    if component is Component.COMPUTE and launch.params.flash_attn == "off":
        found.append(_FLASH)
    if component in {Component.COMPUTE, Component.GRAPH}:
        found += [_micro_batch(n) for n in (n_ubatch // 2, n_ubatch // 4, n_ubatch // 8) if n >= 32]
    if component is Component.WEIGHTS and (mapped := edits.mapped(command)):
        why = "the kernel can drop and reread pages of a mapped file, but not of a copy"
        found.append(Change("weights mapped, not read", Cost.FREE, why, mapped))
    if component is Component.WEIGHTS and on_device and launch.layers_given is not None:
        found.append(_LAYERS)
    return tuple(sorted(found, key=lambda change: change.cost.rank))


def untried(failure: Failure, command: Command) -> tuple[str, ...]:
    """What else changes this component, and what it would cost: for the user to decide."""
    known = command.flags.get
    match failure.component:
        case Component.KV if known("-ctk") is not None and not command.has("-ctk"):
            return ("-ctk q8_0 -ctv q8_0 (quality; about half of the KV cache)",)
        case Component.RS:
            return ("quantised KV (quality; does not shrink RS)",)
        case Component.WEIGHTS if known("-ncmoe") is not None:
            return ("a smaller quantisation (quality)", "-ncmoe for a MoE model (speed)")
        case Component.WEIGHTS:
            return ("a smaller quantisation (quality)",)
        case _:
            return ()


_FLASH: Final = Change(
    "flash attention on",
    Cost.FREE,
    "without it the compute buffer holds attention scores for the whole context",
    {"-fa": "on"},
)
_LAYERS: Final = Change(
    "let the server choose the layers",
    Cost.SPEED,
    "a fixed -ngl keeps --fit from moving layers to the CPU",
    {"-ngl": None},
)


def _micro_batch(tokens: int) -> Change:
    return Change(
        f"micro-batch {tokens}",
        Cost.SPEED,
        "compute buffers and graph metadata grow with it; prompts are read more slowly",
        {"-ub": str(tokens)},
    )


def _may_be_caches(failure: Failure) -> bool:
    """Whether saved prompts or checkpoints may have taken the memory, or died while being taken."""
    serving = failure.kind in {
        Kind.RUNTIME_ALLOCATION, Kind.KILLED, Kind.STATE_GROWTH, Kind.CRASH, Kind.RPC,
    }  # fmt: skip
    return serving or failure.component in {Component.PROMPT_CACHE, Component.CHECKPOINTS}
