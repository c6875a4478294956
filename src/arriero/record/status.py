"""How a supervised server is doing now."""

from __future__ import annotations

from typing import Literal

import msgspec

from arriero.base.words import ServerState


class ServedEngine(msgspec.Struct, frozen=True, kw_only=True):
    """The engine behind the server: its process now, or the command that is to run next."""

    pid: int | None = None
    """Null while none runs."""
    build: int | None = None
    argv: tuple[str, ...] = ()
    """As it was started, without secrets."""
    ready_s: float | None = None
    """From its start to the first completion that it answered; null until then."""
    restarts: int = 0
    """Starts after the first one."""
    up_s: float | None = None
    """Since it was ready."""


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """A change that was made to the command so that the engine stays up."""

    change: str
    why: str


class RequestCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Requests since the server began to listen.

    Every one received ends in exactly one of ``answered``, ``refused``, ``error_events``,
    ``cancelled`` and ``lost``; until then it is ``in_flight``. ``held``, ``replayed`` and
    ``continued`` say what happened to it on the way.
    """

    received: int = 0
    answered: int = 0
    held: int = 0
    replayed: int = 0
    continued: int = 0
    refused: int = 0
    error_events: int = 0
    cancelled: int = 0
    lost: int = 0
    executed_twice: int = 0
    in_flight: int = 0
    """Received and not ended: ``waiting`` ones and those that the engine has."""
    waiting: int = 0
    """For a free slot, or for the engine to come back."""


class MemoryUse(msgspec.Struct, frozen=True, kw_only=True):
    """One pool of memory: what was planned beside what is taken, in bytes."""

    pool: str
    planned: int | None = None
    """For this engine at its start."""
    most: int | None = None
    """Planned at most: with what grows while it serves, such as saved prompts."""
    actual: int | None = None
    """Taken by this engine now."""
    total: int | None = None
    free: int | None = None


class SlotUse(msgspec.Struct, frozen=True, kw_only=True):
    """One slot of the engine. What is written in it is not shown."""

    id: int
    busy: bool = False
    tokens: int | None = None
    """Tokens of context that it holds."""
    n_ctx: int | None = None
    """Tokens of context that it has room for."""


class ServedTokens(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens, as the engine counts them. Null where it does not say."""

    prompt: int | None = None
    """Of prompts that were read."""
    reused: int | None = None
    """Of prompts that did not have to be read: a slot or the prompt cache had them."""
    predicted: int | None = None
    prompt_tps: float | None = None
    """Tokens a second, over the last requests."""
    predict_tps: float | None = None


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """How a supervised server is doing now."""

    schema: Literal["arriero.status/1"] = "arriero.status/1"
    state: ServerState
    why: str = ""
    """Of a state that is not ready: what it waits for, or why it was given up."""
    version: str = ""
    """Of Arriero."""
    at: str = ""
    """UTC, ISO 8601."""
    up_s: float = 0.0
    """Since the server began to listen."""
    model: str = ""
    """The model's file, without its directory."""
    engine: ServedEngine = ServedEngine()
    gates: tuple[Gate, ...] = ()
    requests: RequestCounts = RequestCounts()
    tokens: ServedTokens = ServedTokens()
    memory: tuple[MemoryUse, ...] = ()
    slots: tuple[SlotUse, ...] = ()
    """Empty where the engine does not tell."""
    incidents: tuple[str, ...] = ()
    """IDs, newest first."""
