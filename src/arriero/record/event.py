"""What a supervised server tells while it runs, one event a line."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from arriero.logs.model import Failure

Name = Literal["listening", "ready", "incident", "gate", "stopped"]


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One event. Only the fields that belong to it are written."""

    schema: Literal["arriero.event/1"] = "arriero.event/1"
    event: Name
    url: str | UnsetType = UNSET
    engine_pid: int | UnsetType = UNSET
    seconds: float | UnsetType = UNSET
    id: str | UnsetType = UNSET
    verdict: Failure | UnsetType = UNSET
    change: str | UnsetType = UNSET
    why: str | UnsetType = UNSET
    status: int | UnsetType = UNSET

    @staticmethod
    def listening(url: str) -> Event:
        """Clients can connect. What they ask is held until the engine is ready."""
        return Event(event="listening", url=url)

    @staticmethod
    def ready(engine_pid: int, seconds: float) -> Event:
        """The engine has answered a completion, so many seconds after its start."""
        return Event(event="ready", engine_pid=engine_pid, seconds=seconds)

    @staticmethod
    def incident(id: str, verdict: Failure) -> Event:
        """The engine was lost."""
        return Event(event="incident", id=id, verdict=verdict)

    @staticmethod
    def gate(change: str, why: str) -> Event:
        """The command was changed so that the engine stays up."""
        return Event(event="gate", change=change, why=why)

    @staticmethod
    def stopped(status: int) -> Event:
        """The server ends with this status; it is the last event."""
        return Event(event="stopped", status=status)

    def line(self) -> bytes:
        """The event as one line of JSON."""
        return msgspec.json.encode(self) + b"\n"
