"""One request, as it is understood, and what has happened to it so far."""

from __future__ import annotations

from dataclasses import dataclass, field

from arriero.serve.apis import registry
from arriero.serve.apis.interface import Asked, Defaults
from arriero.serve.http.interface import Request
from arriero.serve.requests.ledger import Ticket
from arriero.serve.requests.rules import Rules


class HeldTooLongError(Exception):
    """The engine did not come back within the hold limit."""


@dataclass(eq=False)
class Case:
    """What all that is done for one request knows of it."""

    request: Request
    ticket: Ticket
    rules: Rules
    asked: Asked = field(init=False)
    read_with: Defaults = field(init=False)
    tries: int = 0
    """How often it was sent again from its beginning."""
    continued: int = 0
    """How often the rest of its answer was asked for."""
    suspect: bool = False
    """It goes alone: it may be what ends the engine, or too much beside others."""
    held_for: float = 0.0
    passed: bool = False
    """Its client has a part of an answer that nobody here understands."""
    streams: bool = False
    """That is a stream of events."""

    def __post_init__(self) -> None:
        self.understand(self.rules.defaults())

    def understand(self, defaults: Defaults) -> None:
        """Read the request, from its beginning; nothing of an answer is kept."""
        self.read_with = defaults
        self.asked = registry.asked_of(self.request, defaults, self.rules.continue_)

    @property
    def path(self) -> str:
        """Without the prefix."""
        return self.request.path.removeprefix(self.rules.prefix)

    def hold(self, seconds: float) -> None:
        """No engine answered it for so long.

        Raises:
            HeldTooLongError: With all times before that is too long.
        """
        self.held_for += seconds
        if self.held_for >= self.rules.hold:
            raise HeldTooLongError
