"""Looks at one start from its first line to its end: does it work, is it busy, does it hang?"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from arriero.base.words import Kind
from arriero.launch import Serving
from arriero.launch.placement import workers
from arriero.serve.supervisor import probe
from arriero.serve.supervisor.hang import Doubt, HangClock, moved
from arriero.serve.supervisor.options import Options
from arriero.serve.supervisor.run import Run
from arriero.serve.supervisor.verdict import Condemned

TICK: Final = 0.5
_READY_TICK: Final = 0.02
_HEALTH: Final = 0.5
"""Seconds between two looks at ``/health`` while no line says that it is loaded."""
_PROBE: Final = 20.0
"""Seconds for the small completion that decides; while it shows signs of work, it is busy."""
_REFUSALS: Final = 3
_AGAIN: Final = 0.3
_DYING: Final = 0.05
_EXIT: Final = 3.0

Condemn = Callable[[Run, Condemned], None]


class Watch:
    """Looks at one start. It ends nothing itself: it tells ``condemn`` why it should be."""

    def __init__(
        self, run: Run, serving: Serving, options: Options, condemn: Condemn, build: int | None
    ) -> None:
        self.requests = 0
        """That it has now."""
        self._run = run
        self._serving = serving
        self._options = options
        self._condemn = condemn
        self._build = build
        self._look: asyncio.Task[bool] | None = None
        remote = bool(workers(run.private.command))
        pid = run.pid or 0
        tree = serving.router
        self._loading = HangClock(pid, options.load_stall, remote=remote, tree=tree)
        self._clock = HangClock(pid, options.hang_after, remote=remote, tree=tree)

    # -- until it answers

    async def until_answered(self) -> bool:
        """Wait for its first completion. False if it has ended or does not come to it."""
        run, looked, refusals = self._run, 0.0, 0
        while run.alive and run.condemned is None:
            now = time.monotonic()
            if run.log.ready or (now - looked > _HEALTH and await self._says_healthy()):
                answer = await self._first_completion()
                if answer.works:
                    await self._note_ready()
                    return run.alive
                refusals += answer.status is not None and not answer.loading
                if refusals >= _REFUSALS:
                    why = f"its first completion was answered with {answer.status}"
                    self._condemn(run, Condemned(Kind.BACKEND, why))
                    return False
                await asyncio.sleep(_AGAIN)
            if now - looked > _HEALTH:
                looked = now
                if self._stalls(now):
                    return False
            await asyncio.sleep(_READY_TICK)
        return False

    async def _note_ready(self) -> None:
        run = self._run
        now = time.monotonic()
        run.ready_s, run.ready_at = round(now - run.began, 3), now
        run.live = await probe.live(run.generation, run.upstream, self._serving, self._build)
        run.sample()

    async def _says_healthy(self) -> bool:
        return (await probe.healthy(self._run.upstream, self._serving, 2.0)).status == 200

    async def _first_completion(self) -> probe.Answer:
        """As long as it takes, if it works on it."""
        patience = self._options.load_stall
        task = asyncio.create_task(probe.complete(self._run.upstream, self._serving, 10 * patience))
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=TICK)
                if not self._run.alive or self._stalls(time.monotonic()):
                    return probe.Answer(None)
        finally:
            task.cancel()
        return task.result()

    def _stalls(self, now: float) -> bool:
        run = self._run
        run.sample()
        doubt = self._loading.look(now, 1, moved(run.pid or 0), run.log.lines)
        if doubt is not None:
            self._condemn(run, Condemned(Kind.HANG, doubt.why))
        return doubt is not None

    # -- while it serves

    async def keep_watching(self) -> None:
        """Until it is gone or condemned."""
        run = self._run
        while run.alive and run.condemned is None:
            await asyncio.sleep(TICK)
            run.sample()
            now = time.monotonic()
            if run.log.leaving and not await self._leaves():
                return
            doubt = self._clock.look(now, self.requests, run.progress, run.log.lines)
            if doubt is None:
                continue
            if doubt.sure:
                self._hangs(doubt)
            elif await self.well(doubt.why):
                self._clock.restart(time.monotonic())

    async def _leaves(self) -> bool:
        """Whether one that was asked to end from outside does so; else it is condemned."""
        deadline = time.monotonic() + _EXIT
        while self._run.alive and time.monotonic() < deadline:
            await asyncio.sleep(_READY_TICK)
        if self._run.alive:
            why = "it was asked to end from outside (SIGTERM), and waits for its requests"
            self._condemn(self._run, Condemned(Kind.KILLED, why))
        return not self._run.alive

    def _hangs(self, doubt: Doubt) -> None:
        blames = not doubt.outside
        self._condemn(self._run, Condemned(Kind.HANG, doubt.why, blames_requests=blames))

    async def well(self, why: str) -> bool:
        """Whether it completes something now; if not, it is condemned. Asked once at a time."""
        if self._look is None or self._look.done():
            self._look = asyncio.create_task(self._completes(why))
        return await asyncio.shield(self._look)

    async def outlived_a_connection(self) -> bool:
        """Whether it answers although a connection broke; waits for its end if it is dying."""
        run = self._run
        await asyncio.sleep(_DYING)
        if run.alive and await self._says_healthy() and run.alive:
            return True
        deadline = time.monotonic() + _EXIT
        while run.alive and time.monotonic() < deadline:
            await asyncio.sleep(_READY_TICK)
        return run.alive and await self.well("a connection broke and it does not answer")

    async def _completes(self, why: str) -> bool:
        """Two answers with an error are too many: one may be for want of memory for a moment."""
        run = self._run
        for attempt in range(2):
            before = self._signs()
            answer = await self._asked()
            if answer.works:
                return True
            if not run.alive or run.condemned is not None:
                return False
            if answer.status is None:
                if self._signs() != before:
                    return True  # busy: it will come to it
                self._condemn(run, Condemned(Kind.HANG, why, blames_requests=True))
                return False
            if attempt == 0:
                await asyncio.sleep(_AGAIN)
        told = f"it answers {answer.status} to a small completion of Arriero's own; {why}"
        self._condemn(run, Condemned(Kind.BACKEND, told, blames_requests=True))
        return False

    async def _asked(self) -> probe.Answer:
        answer = probe.Answer(None)
        deadline = time.monotonic() + _PROBE
        while (left := deadline - time.monotonic()) > 0 and self._run.alive:
            answer = await probe.complete(self._run.upstream, self._serving, left)
            if not answer.loading:
                break
            await asyncio.sleep(_AGAIN)
        return answer

    def _signs(self) -> tuple[int, int]:
        return self._run.progress, self._run.log.lines
