"""Every request that came, and what became of it: each ends in exactly one way."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from arriero.record.status import RequestCounts


class Phase(StrEnum):
    """Where a request is in its life. ``docs/decisions/0007`` has the picture."""

    RECEIVED = "received"
    WAITING = "waiting"
    """For its turn, or for an engine."""
    SENT = "sent"
    """The engine has it; nothing of an answer has come."""
    ANSWERING = "answering"
    """An answer comes, and is passed on or collected."""
    HELD = "held"
    """The engine was lost: it is sent again, or continued, when there is one."""
    ENDED = "ended"


class Outcome(StrEnum):
    """How a request ended, in the words of the contract."""

    ANSWERED = "answered"
    REFUSED = "refused"
    ERROR_EVENT = "error_events"
    CANCELLED = "cancelled"
    LOST = "lost"


_NEXT: Final = {
    Phase.RECEIVED: {Phase.WAITING, Phase.ENDED},
    Phase.WAITING: {Phase.SENT, Phase.HELD, Phase.ENDED},
    Phase.SENT: {Phase.ANSWERING, Phase.HELD, Phase.ENDED},
    Phase.ANSWERING: {Phase.HELD, Phase.ENDED},
    Phase.HELD: {Phase.SENT, Phase.HELD, Phase.ENDED},
    Phase.ENDED: set[Phase](),
}


@dataclass
class Ledger:
    """Counts of all requests. Belongs to one event loop."""

    counts: dict[str, int] = field(default_factory=dict)
    in_flight: int = 0
    waiting: int = 0

    def receive(self) -> Ticket:
        """A request came."""
        self._add("received")
        self.in_flight += 1
        return Ticket(self)

    def refuse(self) -> None:
        """A request came and was refused before it could be read whole."""
        self.receive().end(Outcome.REFUSED)

    def told(self) -> RequestCounts:
        """The counts as the status has them."""
        return RequestCounts(**self.counts, in_flight=self.in_flight, waiting=self.waiting)

    def _add(self, name: str) -> None:
        self.counts[name] = self.counts.get(name, 0) + 1


@dataclass
class Ticket:
    """One request in the ledger."""

    ledger: Ledger
    phase: Phase = Phase.RECEIVED
    outcome: Outcome | None = None
    _noted: set[str] = field(default_factory=set)

    def move(self, phase: Phase) -> None:
        """The request goes on to this phase.

        Raises:
            AssertionError: It cannot come there from where it is.
        """
        if phase is self.phase and phase is not Phase.HELD:
            return
        assert phase in _NEXT[self.phase], f"{self.phase} -> {phase}"  # noqa: S101 - a defect of ours
        waits = {Phase.WAITING, Phase.HELD}
        self.ledger.waiting += (phase in waits) - (self.phase in waits)
        self.phase = phase

    def note(self, name: str) -> None:
        """It was ``held``, ``replayed``, ``continued`` or ``executed_twice``; counted once."""
        if name not in self._noted:
            self._noted.add(name)
            self.ledger._add(name)

    def end(self, outcome: Outcome) -> None:
        """It ended so; only the first end counts."""
        if self.outcome is not None:
            return
        self.move(Phase.ENDED)
        self.outcome = outcome
        self.ledger.in_flight -= 1
        self.ledger._add(outcome.value)
