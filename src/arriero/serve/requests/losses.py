"""What becomes of a request whose engine is lost: sent again, continued, alone, or ended."""

from __future__ import annotations

from typing import Final

from arriero.serve.requests.case import Case
from arriero.serve.requests.lobby import Lobby
from arriero.serve.requests.writing import Writer
from arriero.serve.supervisor.interface import Engine, Live

_POISON: Final = 3
"""Crashes of the engine with nothing but this request in work: then it is not sent again."""
_CROWDED: Final = 3
_BROKEN: Final = 5
"""Connections that may break for one request although the engine lives."""


class RetryError(Exception):
    """The request must be sent again."""


class Losses:
    """All losses of one request."""

    def __init__(self, case: Case, writer: Writer, engine: Engine, lobby: Lobby) -> None:
        self._case, self._writer, self._engine, self._lobby = case, writer, engine, lobby
        self._lonely_crashes = 0
        self._crowded = 0
        self._broken = 0
        self._incident: str | None = None
        """At which the engine was lost while it had this; None once it is told what became of
        it."""

    async def after_loss(self, live: Live, reason: str, *, handed: bool = True) -> None:
        """Find out what became of the engine; decide what becomes of the request.

        Args:
            handed: The engine can have begun with it.

        Raises:
            RetryError: It goes again.
        """
        case, alone = self._case, self._lobby.in_work <= 1
        loss = await self._engine.lost(live.generation, reason)
        self._incident = loss.incident
        if not handed:
            raise RetryError
        if loss.alive:
            self._broken += 1
            case.ticket.note("executed_twice")
            if self._broken >= _BROKEN:
                await self._writer.break_off(f"the engine breaks its answer off: {reason}")
                return
        if loss.blames_requests and case.asked.works:
            case.suspect = True
            self._lonely_crashes += alone
        if self._lonely_crashes >= _POISON:
            self._became("error_events")
            await self._writer.break_off(
                f"the engine ended {_POISON} times while it answered this alone"
            )
            return
        await self._again()

    @property
    def may_crowd(self) -> bool:
        """Whether it may go again once more because requests in work filled the cache."""
        return self._crowded < _CROWDED

    async def crowd(self) -> None:
        """Requests in work together filled the cache: it goes again with nothing beside it.

        Raises:
            RetryError: It goes again.
        """
        self._crowded += 1
        self._case.suspect = True
        await self._again()

    async def _again(self) -> None:
        """The request goes again, or is continued, unless its client has what cannot go on.

        Raises:
            RetryError: It goes again.
        """
        case, answer = self._case, self._case.asked.answer
        if answer is not None and answer.sent and answer.continuable:
            self._became("continued")
            raise RetryError
        if case.passed or (answer is not None and answer.sent and case.asked.streams):
            self._became("error_events")
            why_not = "" if answer is None else f": {self._why_not}"
            await self._writer.break_off(f"the engine was lost while it answered{why_not}")
            return
        case.tries += 1
        case.ticket.note("replayed")
        self._became("replayed")
        case.understand(case.read_with)
        raise RetryError

    def _became(self, what: str) -> None:
        incident, self._incident = self._incident, None
        if incident is not None and self._case.rules.became is not None:
            self._case.rules.became(incident, what)

    @property
    def _why_not(self) -> str:
        return self._case.asked.why_not or "what was sent cannot be continued"
