"""One request's life: it waits, is sent and answered; is sent again or continued if need be."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from arriero.serve.apis.interface import Answer, ApiError
from arriero.serve.http.interface import Outlet, Request, UpstreamLostError
from arriero.serve.refusals import is_out_of_memory
from arriero.serve.requests.case import Case, HeldTooLongError
from arriero.serve.requests.ledger import Phase
from arriero.serve.requests.lobby import FullError, Lobby
from arriero.serve.requests.losses import Losses, RetryError
from arriero.serve.requests.receiving import WHOLE, Receiver, all_of
from arriero.serve.requests.writing import AS_JSON, Writer
from arriero.serve.supervisor.interface import Engine, GaveUpError, Live, State

_LOOK: Final = 0.5
_OFTEN: Final = 0.05
_TELL: Final = 2.0
"""Seconds to tell the client of a request that is stopped."""
_STOPPING: Final = "this server is stopping: ask again soon"
_T = TypeVar("_T")


class Exchange:
    """See the module. ``docs/decisions/0007`` has its states and what is promised in each."""

    def __init__(self, case: Case, outlet: Outlet, engine: Engine, lobby: Lobby) -> None:
        self._case, self._engine, self._lobby = case, engine, lobby
        self._writer = Writer(case, outlet)
        self._losses = Losses(case, self._writer, engine, lobby)
        self._receiver = Receiver(case, self._writer, self._losses, engine)
        self._task: asyncio.Task[None] | None = None
        self._stopped = False

    async def run(self) -> None:
        """Until the client has its answer, or knows that there will be none."""
        self._task = task = asyncio.current_task()
        try:
            await self._live()
        except asyncio.CancelledError:
            if not self._stopped or task is None:
                raise
            task.uncancel()
            await self._writer.refuse(_STOPPING, retry=5)

    async def stop(self) -> None:
        """The server stops before this has its answer: its client is told so."""
        task = self._task
        if task is not None and not self._stopped and self._case.ticket.outcome is None:
            self._stopped = True
            task.cancel()
            await asyncio.wait({task}, timeout=_TELL)

    async def _live(self) -> None:
        ticket, refuse = self._case.ticket, self._writer.refuse
        if self._case.rules.draining:
            await refuse(_STOPPING, retry=5)
            return
        try:
            while True:
                try:
                    await self._try()
                except RetryError:
                    ticket.move(Phase.HELD)
                    ticket.note("held")
                else:
                    return
        except HeldTooLongError:
            await refuse("the engine is still not back: ask again later", retry=30)
        except FullError:
            await refuse("too many requests wait already: ask again later", retry=10)
        except GaveUpError as error:
            await refuse(f"the engine is not started again: {error}", retry=60)
        except ApiError as error:
            await self._writer.break_off(f"the rest of this answer could not be asked for: {error}")

    async def _try(self) -> None:
        """One start of the engine answers it.

        Raises:
            RetryError: That was not the end of it.
        """
        case, lobby, engine = self._case, self._lobby, self._engine
        works, again = case.asked.works, case.ticket.phase is Phase.HELD
        if not again:
            case.ticket.move(Phase.WAITING)
        if works and not lobby.enter_now(alone=case.suspect):
            entering = lobby.enter(case.request.client, alone=case.suspect, again=again)
            await self._wait(entering, undo=lobby.leave)
        try:
            live = engine.live
            if live is None:
                live = await self._wait(engine.serving())
            lobby.set_room(live.n_slots)
            await self._send(live)
        finally:
            if works:
                lobby.leave()

    # -- waiting

    async def _wait(
        self, wanted: Coroutine[Any, Any, _T], undo: Callable[[], None] = lambda: None
    ) -> _T:
        """Wait for a turn or an engine; tell a client that waits for a stream that it does.

        Only time in which no engine answers counts as held.

        Args:
            undo: What was wanted came at the moment at which it was no longer waited for.

        Raises:
            HeldTooLongError: It was held too long.
        """
        task = asyncio.get_running_loop().create_task(wanted)
        try:
            while True:
                began = time.monotonic()
                done, _ = await asyncio.wait({task}, timeout=self._look())
                if done:
                    return task.result()
                if self._engine.state is State.READY:
                    continue
                self._case.ticket.note("held")
                self._case.hold(time.monotonic() - began)
                await self._writer.comment_waiting()
        except BaseException:
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            elif not task.cancelled() and task.exception() is None:
                undo()
            raise

    def _look(self) -> float:
        """Seconds until there is something to do for one that waits."""
        rules = self._case.rules
        left = max(rules.hold - self._case.held_for, 0.0)
        return min(_LOOK, left, max(rules.comment, _OFTEN))

    # -- sending

    async def _send(self, live: Live) -> None:
        """Give the engine the request, or ask it for the rest of the answer."""
        case = self._case
        if live.defaults != case.read_with and case.ticket.phase is Phase.WAITING:
            case.understand(live.defaults)  # it came before the engine had told them
        answer, handed = case.asked.answer, False
        try:
            request = case.asked.inside
            if answer is not None and answer.sent:
                request = await self._ask_for_rest(live, answer)
            case.ticket.move(Phase.SENT)
            handed = True
            call = await live.upstream.send(
                request.method, request.target, request.headers, request.body
            )
            try:
                await self._receiver.receive(live, call)
            finally:
                call.close()
        except UpstreamLostError as error:
            await self._losses.after_loss(live, str(error), handed=handed and error.sent)

    async def _ask_for_rest(self, live: Live, answer: Answer) -> Request:
        async def ask(path: str, body: bytes) -> bytes:
            target = (self._case.rules.prefix + path).encode()
            call = await live.upstream.send("POST", target, AS_JSON, body)
            try:
                got = await all_of(call, WHOLE)
            finally:
                call.close()
            if is_out_of_memory(got) and await self._engine.failed(
                live.generation, call.status, got
            ):
                raise UpstreamLostError("it could not allocate memory", sent=False)
            if call.status != 200:
                raise ApiError(f"{path} answered {call.status}")
            return got

        rest = await answer.rest(ask)
        self._case.continued += 1
        self._case.ticket.note("continued")
        self._writer.comment_continued()
        return rest
