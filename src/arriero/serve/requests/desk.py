"""Where all requests to one engine are answered."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from arriero.serve.http.interface import Outlet, Request
from arriero.serve.requests.case import Case
from arriero.serve.requests.exchange import Exchange
from arriero.serve.requests.ledger import Ledger, Outcome
from arriero.serve.requests.lobby import Lobby
from arriero.serve.requests.rules import Rules
from arriero.serve.supervisor.interface import Engine


@dataclass
class Desk:
    """What all requests to one engine share."""

    engine: Engine
    rules: Rules
    ledger: Ledger
    lobby: Lobby
    _exchanges: set[Exchange] = field(default_factory=set)

    async def answer(self, request: Request, outlet: Outlet) -> None:
        """Answer one request. Cancelled when its client goes."""
        ticket = self.ledger.receive()
        case = Case(request, ticket, self.rules)
        exchange = Exchange(case, outlet, self.engine, self.lobby)
        self._exchanges.add(exchange)
        try:
            await exchange.run()
        except asyncio.CancelledError:
            ticket.end(Outcome.CANCELLED)
            raise
        finally:
            self._exchanges.discard(exchange)
            ticket.end(Outcome.LOST)  # unless it has ended in another way

    async def stop(self) -> None:
        """Tell all requests that are left that there will be no answer; back when they know."""
        self.rules.draining = True
        left = [one.stop() for one in [*self._exchanges]]
        await asyncio.gather(*left, return_exceptions=True)
