"""What a diagnosis starts from: one command, and everything that was found out before a start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from arriero.advice import ARENAS, caches_off, host_caches
from arriero.base.words import Cost, LimitKind
from arriero.command import Command
from arriero.logs.model import Failure
from arriero.process import Limit
from arriero.record import Baseline


@dataclass(frozen=True)
class Problem:
    """The command to diagnose, and how much may be spent on it.

    ``max_time`` is in seconds. ``as_given`` starts the command although it could take the machine
    down. ``from_log`` is its failure where a log tells it: then it is not started.
    """

    id: str
    command: Command
    baseline: Baseline
    as_given: bool = False
    from_log: Failure | None = None
    max_time: float | None = None
    max_launches: int = 24
    verify_requests: int = 64


@dataclass(frozen=True)
class Base:
    """The command that trials vary, and what it changes beside the one variable.

    ``env`` is set in the engine's environment. ``beside`` says the changes in words, with costs.
    """

    command: Command
    env: Mapping[str, str]
    beside: tuple[tuple[str, Cost], ...] = ()


def controlled_env(command: Command, limit: Limit | None) -> dict[str, str]:
    """What every controlled trial sets, so that two runs take the same address space."""
    if limit is None or limit.kind is not LimitKind.ADDRESS_SPACE:
        return {}
    return {name: value for name, value in ARENAS.env.items() if name not in command.environ}


def base_of(
    command: Command,
    limit: Limit | None,
    *,
    slots: int,
    checkpoint_bytes: int | None,
    capacity: int | None,
) -> Base:
    """As given, with the caches off where their worst case alone would break the capacity."""
    beside: list[tuple[str, Cost]] = []
    off = caches_off(command)
    caches = host_caches(command, n_slots=slots, per_checkpoint=checkpoint_bytes).most
    if off is not None and (caches is None or (capacity is not None and caches > capacity / 4)):
        command = off.apply(command)
        beside.append((off.title, off.cost))
    env = controlled_env(command, limit)
    if env:
        beside.append((ARENAS.title, ARENAS.cost))
    return Base(command, env, tuple(beside))
