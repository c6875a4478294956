"""What happened when a supervised engine died, hung or fell ill."""

from __future__ import annotations

from typing import Literal

import msgspec

from arriero.base.words import Recovery
from arriero.logs.model import Failure
from arriero.record.status import MemoryUse


class IncidentRequests(msgspec.Struct, frozen=True, kw_only=True):
    """Requests that the engine had when it was lost, by what became of them."""

    in_flight: int = 0
    replayed: int = 0
    continued: int = 0
    error_events: int = 0


class Incident(msgspec.Struct, frozen=True, kw_only=True):
    """One loss of a supervised engine, from its end to its return."""

    schema: Literal["arriero.incident/1"] = "arriero.incident/1"
    id: str
    at: str
    """UTC, ISO 8601."""
    verdict: Failure
    """By its log, its signal and its memory. ``line`` counts in the log of that start; 0 where no
    line shows it."""
    signal: str | None = None
    """``SIGKILL``; null where no signal ended it."""
    status: int | None = None
    """With which it exited; null where a signal ended it, or Arriero did."""
    build: int | None = None
    argv: tuple[str, ...] = ()
    """Of the engine that was lost, without secrets."""
    up_s: float | None = None
    """How long it had been ready."""
    lost_context_tokens: int | None = None
    """Tokens of context that its slots held and that are gone with it."""
    reread_s: float | None = None
    """What reading these again takes, at the speed at which it read prompts."""
    memory: tuple[MemoryUse, ...] = ()
    """When it was last seen alive."""
    requests: IncidentRequests = IncidentRequests()
    down_s: float | None = None
    """From its loss to the next answer; null until there is one."""
    action: Recovery | None = None
    """Null until it is decided."""
    change: str = ""
    """What the next start has different."""
    why: str = ""
    """Why this was done."""
    log: tuple[str, ...] = ()
    """The last lines, without secrets."""
    complete: bool = True
    """False until the engine is back or given up."""


class Incidents(msgspec.Struct, frozen=True, kw_only=True):
    """Incidents of a server, newest first, each without its ``log``."""

    schema: Literal["arriero.incidents/1"] = "arriero.incidents/1"
    incidents: tuple[Incident, ...]
