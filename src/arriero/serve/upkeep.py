"""What is done for one engine between requests: its contexts are kept, its memory is watched."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

from arriero.base.buffers import HOST
from arriero.base.words import Kind, Recovery
from arriero.command import Command
from arriero.launch import Mode, Serving
from arriero.process import Limit, scratch_directory
from arriero.record.incident import Incident
from arriero.record.plan import PlanPool
from arriero.serve import memory_watch
from arriero.serve.contexts import Call, Contexts
from arriero.serve.http.interface import UpstreamLostError
from arriero.serve.keeping import FLAG, Keeping, keeping, kept_by, place
from arriero.serve.memory_watch import MemoryWatch, readings
from arriero.serve.supervisor import probe
from arriero.serve.supervisor.incident import KEPT
from arriero.serve.supervisor.interface import Live, State
from arriero.serve.supervisor.run import Run
from arriero.serve.supervisor.verdict import Condemned

IDLE: Final = 5.0
"""Seconds without a request after which slots are saved."""
TICK: Final = 1.0
_WATCH: Final = 2.0
_CALL: Final = 120.0
"""Seconds for one slot: gigabytes onto a slow disk."""
_AGAIN: Final = 10.0
"""Seconds after a restart for memory before the next one."""
_NOT_ITS_DOING: Final = frozenset({Kind.KILLED, Kind.HANG})
"""Ends that no save or restore is blamed for."""


class Tended(Protocol):
    """A supervised engine, as its upkeep sees it."""

    @property
    def state(self) -> State: ...

    @property
    def run(self) -> Run | None: ...

    @property
    def requests(self) -> int:
        """That it has now."""

    async def request_restart(self, reason: str, condemned: Condemned) -> None: ...


class Upkeep:
    """Contexts and memory of one supervised engine. As a context manager it leaves no file.

    ``ready``, ``leaving`` and ``incident`` are the supervisor's hooks; :meth:`tend` runs beside it.

    Attributes:
        command: What the supervisor is to run: the command with a place for saved slots.
        keeping: Whether contexts are kept, and why not.
        contexts: None where they are not kept.
    """

    def __init__(
        self,
        command: Command,
        serving: Serving,
        *,
        cwd: Path,
        build: int | None,
        keep_context: str,
        memory_reserve: int,
        pools: Sequence[PlanPool] = (),
        limit: Limit | None = None,
        note: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._serving, self._limit, self._note = serving, limit, note
        self._stack = contextlib.ExitStack()
        self.keeping = self._decided(command, cwd, build, keep_context)
        self.contexts: Contexts | None = None
        self.command = command
        if self.keeping.on:
            directory = self._stack.enter_context(scratch_directory(place()))
            self.contexts = Contexts(directory)
            self.command = command.with_value(FLAG, str(directory))
        self.watch = MemoryWatch(memory_reserve, growth=_growth(pools))
        self._live: Live | None = None
        self._seen: deque[str] = deque(maxlen=2 * KEPT)
        self._moved = (0, 0)
        self._since = 0.0
        self._unsaved = False
        self._restarted: float | None = None

    def __enter__(self) -> Upkeep:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def closes_slots(self) -> bool:
        """Whether ``POST /slots/ID?action=…`` works only because of us: clients get a 501."""
        return self.contexts is not None

    # -- hooks of the supervisor

    async def ready(self, live: Live) -> None:
        """Restore what the slots held, before requests get in."""
        self._live, self._unsaved = live, False
        self.watch.begun()
        if self.contexts is None or not self.contexts.saved:
            return
        done = await self.contexts.restore(self._call(live), live.n_slots)
        if done.slots:
            self._note(f"restored {done.tokens} tokens of context in {done.slots} slots")

    async def leaving(self, live: Live) -> None:
        """Save slots before an end on purpose."""
        if self.contexts is not None:
            await self._save(live)

    def incident(self, incident: Incident) -> None:
        """Hear of the loss of an engine, at once and when it is decided what follows."""
        contexts = self.contexts
        if contexts is None:
            return
        if incident.id not in self._seen:
            self._seen.append(incident.id)
            contexts.lost(crashed=incident.verdict.kind not in _NOT_ITS_DOING)
        if incident.action in (Recovery.SMALLER, Recovery.WITHOUT_WORKER):
            contexts.changed()

    # -- beside it

    async def tend(self, engine: Tended) -> None:
        """Save when idle and restart before memory runs out, until this task is cancelled."""
        watched = 0.0
        while True:
            await asyncio.sleep(TICK)
            now = time.monotonic()
            if engine.state is not State.READY or engine.run is None or not engine.run.alive:
                continue
            if now - watched >= _WATCH:
                watched = now
                await self.look(engine, engine.run, now)
            await self.save_if_idle(engine, engine.run, now)

    async def look(self, engine: Tended, run: Run, now: float) -> None:
        """One look at the memory; a restart if it runs out and one is worth it."""
        if run.pid is None:
            return
        found = self.watch.take(readings(now, run.pid, run.memory, self._limit))
        if found is None or (self._restarted is not None and now - self._restarted < _AGAIN):
            return
        self._restarted = now
        self._note(f"restarting the engine in good time: {found}")
        await engine.request_restart(
            str(found), Condemned(Kind.STATE_GROWTH, str(found), wanted=True)
        )

    async def save_if_idle(self, engine: Tended, run: Run, now: float) -> None:
        """Save slots once nothing has been asked for a while and something was before."""
        moved = (run.generation, run.progress)
        if engine.requests or moved != self._moved:
            self._unsaved = self._unsaved or moved != self._moved
            self._moved, self._since = moved, now
        live = self._live
        if not self._unsaved or now - self._since < IDLE or self.contexts is None:
            return
        if run.log.sleeping:
            return  # a question would wake it, and it has nothing to save
        if live is not None and live.generation == run.generation:
            self._unsaved = False
            await self._save(live)

    async def _save(self, live: Live) -> None:
        contexts = self.contexts
        if contexts is None:
            return
        was_off = contexts.off
        await contexts.save(self._call(live))
        if contexts.off != was_off:
            self._note(f"contexts are not kept any more: {contexts.off}")

    def _call(self, live: Live) -> Call:
        async def call(method: str, path: str, body: bytes) -> tuple[int, bytes]:
            target = f"{self._serving.prefix}{path}"
            answer = await probe.ask_raw(live.upstream, method, target, body, _CALL)
            if answer.status is None:
                raise UpstreamLostError("no answer", sent=True)
            return answer.status, answer.body

        return call

    def _decided(self, command: Command, cwd: Path, build: int | None, asked: str) -> Keeping:
        serving = self._serving
        if serving.router:
            return Keeping(False, "a router's models come and go")
        if not serving.slots:
            return Keeping(False, "the command switches /slots off")
        text = serving.mode is Mode.TEXT
        return keeping(asked, command, build=build, kept=kept_by(command, cwd, build), text=text)


def _growth(pools: Sequence[PlanPool]) -> dict[str, int]:
    """The most that the engine may grow by on the host as planned, where that has an end."""
    grown = [one.most for pool in pools if HOST in pool.devices for one in pool.growth]
    if not pools or None in grown:
        return {}
    return {memory_watch.HOST: sum(most or 0 for most in grown)}
