"""Whose turn it is: as many requests at the engine as it has slots, fair between clients."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field


class FullError(Exception):
    """Too many requests wait already."""


@dataclass(eq=False)
class _Waiting:
    client: str
    alone: bool
    out: bool = False
    turn: asyncio.Future[None] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class Lobby:
    """Lets requests in: one client after the other, each client's own in order.

    A request that was at the engine when it was lost goes before all that were not (``again``). One
    that goes ``alone`` waits until nothing else is in work, and nothing else gets in beside it.

    Args:
        most: Requests that may wait.
        changed: Told how many are in work, at each change.
    """

    def __init__(self, most: int, changed: Callable[[int], None] = lambda _: None) -> None:
        self.most = most
        self.room: int | None = 1
        """How many may be in work: the engine's slots; None means no bound."""
        self.in_work = 0
        self._changed = changed
        self._clients: OrderedDict[str, deque[_Waiting]] = OrderedDict()
        self._again: deque[_Waiting] = deque()
        self._waiting = 0
        self._alone = False

    @property
    def waiting(self) -> int:
        return self._waiting

    def enter_now(self, *, alone: bool = False) -> bool:
        """Get a turn without waiting, if nobody waits and there is room; then :meth:`leave`."""
        full = self.room is not None and self.in_work >= self.room
        if self._waiting or self._alone or full or (alone and self.in_work):
            return False
        self._let_in(alone)
        return True

    async def enter(self, client: str, *, alone: bool = False, again: bool = False) -> None:
        """Wait for a turn. Who has got it must :meth:`leave`.

        Raises:
            FullError: Too many wait; never for one that comes again.
        """
        if self._waiting >= self.most and not again:
            raise FullError
        waiting = _Waiting(client, alone)
        if again:
            self._again.append(waiting)
        else:
            self._clients.setdefault(client, deque()).append(waiting)
        self._waiting += 1
        self._advance()
        try:
            await waiting.turn
        except asyncio.CancelledError:
            if waiting.turn.done() and not waiting.turn.cancelled():
                self.leave()
            else:
                self._remove(waiting)
            raise

    def leave(self) -> None:
        """The request is no longer at the engine."""
        self.in_work -= 1
        if self.in_work == 0:
            self._alone = False
        self._changed(self.in_work)
        self._advance()

    def set_room(self, room: int | None) -> None:
        """An engine with so many slots answers."""
        if room != self.room:
            self.room = room
            self._advance()

    def _advance(self) -> None:
        while not self._alone and (self.room is None or self.in_work < self.room):
            waiting = self._first()
            if waiting is None or (waiting.alone and self.in_work):
                return
            self._remove(waiting)
            if not waiting.turn.cancelled():  # one that has given up may not have left yet
                self._let_in(waiting.alone)
                waiting.turn.set_result(None)

    def _let_in(self, alone: bool) -> None:
        self.in_work += 1
        self._alone = alone
        self._changed(self.in_work)

    def _first(self) -> _Waiting | None:
        if self._again:
            return self._again[0]
        return next((queue[0] for queue in self._clients.values()), None)

    def _remove(self, waiting: _Waiting) -> None:
        """Take it out, if it has not been yet; its client goes behind the others."""
        if waiting.out:
            return
        waiting.out = True
        self._waiting -= 1
        if waiting in self._again:
            self._again.remove(waiting)
            return
        queue = self._clients[waiting.client]
        queue.remove(waiting)
        if queue:
            self._clients.move_to_end(waiting.client)
        else:
            del self._clients[waiting.client]
