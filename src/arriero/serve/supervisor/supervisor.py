"""One engine that is kept running: starts it, proves that it works, sees its end, starts it again.

What is to be done is decided by :mod:`.machine`; this does it and tells what came of it.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from arriero.base.errors import ArrieroError
from arriero.base.words import Kind, Recovery
from arriero.command import Command
from arriero.engine import Engine as Installation
from arriero.launch import serving_of
from arriero.record.event import Event
from arriero.record.status import ServedEngine
from arriero.serve.refusals import is_out_of_memory
from arriero.serve.supervisor import machine as life
from arriero.serve.supervisor import memory
from arriero.serve.supervisor.examine import Examiner
from arriero.serve.supervisor.incident import Incidents
from arriero.serve.supervisor.interface import GaveUpError, Live, Loss, State
from arriero.serve.supervisor.log import RotatingLog, StartLog
from arriero.serve.supervisor.options import Alternative, Connect, Hooks, Options
from arriero.serve.supervisor.policy import Lost, ends_in_a_save, wants_another
from arriero.serve.supervisor.private import private
from arriero.serve.supervisor.run import Run
from arriero.serve.supervisor.verdict import Condemned
from arriero.serve.supervisor.watch import Watch
from arriero.serve.supervisor.workers import Workers

_LOSSES: Final = 64
"""Losses that are remembered for requests that ask late."""


class Supervisor:
    """Implements :class:`arriero.serve.supervisor.interface.Engine`. Belongs to one event loop.

    Args:
        command: What the user wants to run, as it is; it is started privately.
        engine: The installation that runs it.
        connect: Makes the connections to one start.
        log: Where lines of all starts go.

    Raises:
        UsageError: The command cannot be started privately.
    """

    def __init__(
        self,
        command: Command,
        engine: Installation,
        connect: Connect,
        log: RotatingLog,
        options: Options,
        hooks: Hooks | None = None,
    ) -> None:
        self.command = command
        """What runs, or runs next: another one after a change."""
        self.options = options
        self.incidents = Incidents((hooks or Hooks()).incident)
        self.draining = False
        """Set by who drains: the state is told as such then."""
        self.why = ""
        """Of a state that is not ready."""
        self._engine = engine
        self._connect = connect
        self._log = log
        self._hooks = hooks or Hooks()
        self._machine = life.Machine(policy=options.policy)
        self._serving = serving_of(command, options.cwd)
        private(command, engine)  # refused now rather than at the first restart
        self._run: Run | None = None
        self._watch: Watch | None = None
        self._requests = 0
        self._leaving = False
        self._before: memory.Before | None = None
        self._alternative: Alternative | None = None
        self._workers = Workers()
        self._losses: dict[int, asyncio.Future[Loss]] = {}
        self._events: deque[life.Event] = deque()
        self._stepping = False
        self._turn = asyncio.Event()
        self._finished = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._examiner = Examiner(engine, self._serving)

    # -- what others see

    @property
    def state(self) -> State:
        state = self._machine.state
        return State.DRAINING if self.draining and state is not State.FAILED else state

    @property
    def gave_up(self) -> str:
        """Why nothing is started again; empty as long as it is."""
        return self._machine.gave_up

    @property
    def run(self) -> Run | None:
        """The present start, or the last one."""
        return self._run

    @property
    def requests(self) -> int:
        """That the engine has now."""
        return self._requests

    def view(self) -> ServedEngine:
        """The engine as the status document has it."""
        run = self._run
        up = None if run is None or not run.alive or run.ready_at is None else run.ready_at
        return ServedEngine(
            pid=run.pid if run is not None else None,
            build=self._engine.build,
            argv=self.command.safe_argv(),
            ready_s=run.ready_s if run is not None and run.alive else None,
            restarts=max(self._machine.generation - 1, 0),
            up_s=None if up is None else round(time.monotonic() - up, 3),
        )

    @property
    def live(self) -> Live | None:
        """See :class:`Engine`."""
        run = self._run
        if self._leaving or self._machine.phase is not life.Phase.SERVING:
            return None
        return run.live if run is not None and run.alive else None

    async def serving(self) -> Live:
        """See :class:`Engine`."""
        while True:
            live, turn = self.live, self._turn
            if live is not None:
                return live
            if self._machine.phase is life.Phase.OVER:
                raise GaveUpError(self._machine.gave_up or "the engine has been stopped")
            await turn.wait()

    async def lost(self, generation: int, reason: str) -> Loss:
        """See :class:`Engine`."""
        loss = self._losses.get(generation)
        if loss is None:
            return Loss(alive=False, blames_requests=False, incident=None)
        watch = self._watch
        if watch is not None and self._serves(generation) and await watch.outlived_a_connection():
            return Loss(alive=True, blames_requests=False, incident=None)
        return await asyncio.shield(loss)

    async def failed(self, generation: int, status: int, body: bytes) -> bool:
        """See :class:`Engine`."""
        watch = self._watch
        if not self._serves(generation) or watch is None:
            return True
        if is_out_of_memory(body) and self._run is not None:
            why = f"it could not allocate memory and answered {status}"
            self._condemn(self._run, Condemned(Kind.RUNTIME_ALLOCATION, why))
            return True
        return not await watch.well(f"it answered {status} to a request")

    def progressed(self, generation: int) -> None:
        """See :class:`Engine`."""
        run = self._run
        if run is not None and run.generation == generation:
            run.progress += 1
            if run.progress == 1:
                self._post(life.Worked(generation))

    def working(self, requests: int) -> None:
        """See :class:`Engine`."""
        self._requests = requests
        if self._watch is not None:
            self._watch.requests = requests

    # -- what others ask for

    def start(self) -> None:
        """Start it for the first time. At once back: :meth:`serving` waits."""
        self._post(life.Begin())

    async def request_restart(self, reason: str, condemned: Condemned) -> None:
        """End it once its requests are answered, or the grace is over, and start it again.

        New requests are held meanwhile; those that are still not answered are sent again or
        continued after the restart. A start that has answered nothing yet is left alone: the next
        one would be no better.
        """
        run = self._run
        if run is None or not self._serves(run.generation) or self._leaving or not run.progress:
            return
        self._leaving, self.why = True, reason
        try:
            deadline = time.monotonic() + self.options.drain
            while self._requests and time.monotonic() < deadline and run.alive:
                await asyncio.sleep(0.05)
            if run.live is not None and run.alive:
                await self._hooks.leaving(run.live)
            self._condemn(run, replace(condemned, wanted=True))
        finally:
            self._leaving = False
            self._turned()

    async def stop(self) -> None:
        """End it for good; back when it is gone."""
        run = self._run
        if run is not None and self._serves(run.generation) and run.live is not None:
            await self._hooks.leaving(run.live)
        self._post(life.Stop())
        await self._finished.wait()
        for task in [*self._tasks]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def over(self) -> None:
        """Back when nothing will be started any more."""
        await self._finished.wait()

    async def kill(self) -> None:
        """End it at once, whatever it does."""
        self._post(life.Stop())
        if self._run is not None:
            await self._run.stop(0.0)

    # -- steps

    def _post(self, event: life.Event) -> None:
        self._events.append(event)
        if self._stepping:
            return
        self._stepping = True
        try:
            while self._events:
                self._machine, actions = self._machine.step(
                    self._events.popleft(), time.monotonic()
                )
                for action in actions:
                    self._do(action)
        finally:
            self._stepping = False
        self._turned()

    def _turned(self) -> None:
        """Whoever waits for a change looks again."""
        self._turn.set()
        self._turn = asyncio.Event()

    def _do(self, action: life.Action) -> None:
        match action:
            case life.Launch(generation):
                self._task(self._launch(self._made(generation)))
            case life.Announce():
                self._announce()
            case life.Kill(_, gently) if self._run is not None:
                self._task(self._run.stop(self.options.grace if gently else 0.0))
            case life.Examine() if self._run is not None:
                self._task(self._examine(self._run))
            case life.Rest():
                self._task(self._rest(action))
            case life.GiveUp(why):
                self.why = why
                self.incidents.decided(Recovery.GIVE_UP, why, "")
                self._over()
            case life.Finish():
                self._over()

    def _over(self) -> None:
        """Nothing will be started: whoever asks what became of a start is told."""
        for loss in self._losses.values():
            if not loss.done():
                loss.set_result(Loss(alive=False, blames_requests=False, incident=None))
        self._finished.set()

    def _made(self, generation: int) -> Run:
        started = private(self.command, self._engine)
        secrets = {*self.command.secrets(), *self._serving.api_keys, started.address.key} - {""}
        log = StartLog(self._log, secrets)
        run = Run(generation, self.command, started, log, self._connect(started.address))
        self._run, self._watch = run, None
        self._losses[generation] = asyncio.get_running_loop().create_future()
        self._losses.pop(generation - _LOSSES, None)
        self.why = "it loads"
        return run

    async def _launch(self, run: Run) -> None:
        if self._before is None:
            self._before = await asyncio.to_thread(memory.now)
        await self._workers.look(self.command)
        self._examiner.begins()
        generation = run.generation
        await run.launch(
            self.options.cwd, self.options.limit, lambda: self._post(life.Ended(generation))
        )
        if not run.alive:
            return
        watch = Watch(run, self._serving, self.options, self._condemn, self._engine.build)
        self._watch = watch
        if not await watch.until_answered() or run.live is None:
            return
        await self._hooks.ready(run.live)
        run.log.serves()
        self._post(life.Answered(generation))
        watch.requests = self._requests
        await watch.keep_watching()

    def _announce(self) -> None:
        self.why = ""
        self.incidents.close(complete=True, back=True)
        run = self._run
        if run is not None and run.pid is not None and run.ready_s is not None:
            self._hooks.event(Event.ready(run.pid, run.ready_s))

    async def _examine(self, run: Run) -> None:
        lost_at = time.monotonic()
        found, incident = await asyncio.to_thread(self._examiner.examine, run, self._requests)
        self.why = f"lost: {incident.verdict.text}"
        self.incidents.add(incident, lost_at)
        self._hooks.event(Event.incident(incident.id, incident.verdict))
        loss = self._losses.get(run.generation)
        if loss is not None and not loss.done():
            loss.set_result(Loss(False, found.blames_requests, incident.id))
        wanted = run.condemned is not None and run.condemned.wanted
        self._hooks.lost(not wanted)
        self._alternative = None
        another = ends_in_a_save(found.failure) or wants_another(
            self.options.policy,
            self._machine.tries,
            memory=found.memory,
            worker=found.failure.kind is Kind.RPC,
            worked=run.progress > 0,
            now=time.monotonic(),
        )
        if another and not wanted:
            # what is planned has to fit what is free once its memory is back
            await self._memory_back(run)
            with suppress(ArrieroError):  # no other command can be made: the same one then
                self._alternative = await asyncio.to_thread(
                    self._hooks.choose, self.command, found.failure
                )
        recovery = None if self._alternative is None else self._alternative.recovery
        served = run.ready_at is not None
        self._post(life.Examined(Lost(incident.verdict, served, recovery, wanted, found.memory)))

    async def _rest(self, rest: life.Rest) -> None:
        change = ""
        if rest.recovery is not Recovery.RESTART and self._alternative is not None:
            self.command, change = self._alternative.command, self._alternative.change
        self.incidents.decided(rest.recovery, rest.why, change)
        if self._run is not None:
            await self._memory_back(self._run)
        await asyncio.sleep(rest.seconds)
        await self._workers.back(self.command, self._say)
        self._post(life.Rested())

    def _say(self, why: str) -> None:
        self.why = why

    async def _memory_back(self, run: Run) -> None:
        if self._before is not None and (missing := await memory.back(self._before, run.memory)):
            self.why = f"memory is still in use: {missing}"

    # -- looking

    def _serves(self, generation: int) -> bool:
        machine = self._machine
        return machine.generation == generation and machine.phase is life.Phase.SERVING

    def _condemn(self, run: Run, condemned: Condemned) -> None:
        if run.generation == self._machine.generation and run.condemned is None and run.alive:
            run.condemned = condemned
            self._post(life.Condemned(run.generation))

    def _task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # A defect of ours must not leave requests waiting for ever.
            why = f"the supervisor failed: {type(error).__name__}: {error}"
            self._machine = replace(self._machine, phase=life.Phase.OVER, gave_up=why)
            self.why = why
            self._over()
            self._turned()
