"""What requests and the control endpoints see of a supervised engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from arriero.base.words import ServerState
from arriero.serve.apis.interface import Defaults
from arriero.serve.http.interface import Upstream

State = ServerState
"""Of a supervised engine, as the contract has it."""


class GaveUpError(Exception):
    """The engine is not started again; the message says why."""


@dataclass(frozen=True, slots=True)
class Live:
    """One start of the engine that answers.

    ``generation`` counts starts from 1; ``n_slots`` is None where it is not known (a router).
    """

    generation: int
    upstream: Upstream
    n_slots: int | None
    n_ctx_slot: int | None
    defaults: Defaults


@dataclass(frozen=True, slots=True)
class Loss:
    """What became of an engine after a request lost its connection.

    ``alive``: it answers; only the connection broke (send again at once).
    ``blames_requests``: its end can be the work of a request (a crash), as a kill from outside is
    not.
    """

    alive: bool
    blames_requests: bool
    incident: str | None


class Engine(Protocol):
    """A supervised engine, as a request sees it."""

    @property
    def state(self) -> State: ...

    @property
    def live(self) -> Live | None:
        """The start that answers now."""

    async def serving(self) -> Live:
        """The start that answers; waits for one. Who asks bounds the wait.

        Raises:
            GaveUpError: There will be none.
        """

    async def lost(self, generation: int, reason: str) -> Loss:
        """A connection to this start broke: find out why, and recover if it is gone.

        Returns as soon as it is known whether the engine lives, not when it is back.
        """

    async def failed(self, generation: int, status: int, body: bytes) -> bool:
        """The engine answered with an error that can be its own fault.

        True if it is sick: it is being replaced, send again later.
        """

    def progressed(self, generation: int) -> None:
        """Bytes of an answer came: it does not hang. Cheap: called for every event."""

    def working(self, requests: int) -> None:
        """How many requests the engine has now: a hang shows only while there are some."""
