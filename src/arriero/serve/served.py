"""One supervised engine with all that belongs to it: its requests, its endpoints, its memory."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from arriero.base.errors import ArrieroError
from arriero.record.incident import Incident
from arriero.serve.access import Access, Keys
from arriero.serve.apis import registry
from arriero.serve.apis.interface import Defaults
from arriero.serve.assignment import Assignment, Note, Tell
from arriero.serve.control.handler import Control
from arriero.serve.control.view import ServerView
from arriero.serve.http.interface import Address, Outlet, Request, Upstream
from arriero.serve.http.upstream import Pool
from arriero.serve.memory_watch import Reading, readings
from arriero.serve.requests.closed import closed
from arriero.serve.requests.desk import Desk
from arriero.serve.requests.ledger import Ledger
from arriero.serve.requests.lobby import Lobby
from arriero.serve.requests.rules import Rules
from arriero.serve.settings import Settings
from arriero.serve.supervisor.assigned import supervisor_of
from arriero.serve.supervisor.log import RotatingLog
from arriero.serve.supervisor.options import Hooks
from arriero.serve.supervisor.supervisor import Supervisor
from arriero.serve.upkeep import Upkeep

_LOG: Final = "engine.log"
_LOOK: Final = 0.02


def _connect(address: Address) -> Upstream:
    return Pool(address)


class Served:
    """One engine that is kept up, and how its requests are answered. Belongs to one event loop.

    Args:
        directory: For the log, if the settings name none.

    Raises:
        UsageError: The command cannot be started privately.
    """

    def __init__(self, assignment: Assignment, directory: Path, tell: Tell, note: Note) -> None:
        self._stack = ExitStack()
        settings, serving = assignment.settings, assignment.serving
        self._upkeep = self._stack.enter_context(
            Upkeep(
                assignment.command,
                serving,
                cwd=assignment.cwd,
                build=assignment.build,
                keep_context=settings.keep_context,
                memory_reserve=settings.memory_reserve,
                pools=assignment.pools,
                note=note,
            )
        )
        self.assignment = assignment = replace(assignment, command=self._upkeep.command)
        self._note = note
        self._tending: asyncio.Task[None] | None = None
        self._keeping: set[asyncio.Task[None]] = set()
        self._kept: dict[str, Incident] = {}
        self._log = RotatingLog((settings.log_dir or directory) / _LOG, settings.log_size)
        self._stack.callback(self._log.close)
        hooks = Hooks(
            event=tell,
            incident=self._on_incident,
            ready=self._upkeep.ready,
            leaving=self._upkeep.leaving,
        )
        self.supervisor: Supervisor = supervisor_of(assignment, _connect, self._log, hooks)
        self.ledger = Ledger()
        rules = Rules(
            prefix=serving.prefix,
            defaults=self._defaults,
            heard=self._heard,
            became=self._became,
        )
        lobby = Lobby(settings.queue, self.supervisor.working)
        self.desk = Desk(self.supervisor, rules, self.ledger, lobby)
        view = ServerView(assignment, self.supervisor, self.ledger.told, self._readings)
        self.control = Control(view, assignment.redactor, serving.prefix)
        self.reload(settings)

    def reload(self, settings: Settings) -> None:
        """Settings that count at once."""
        rules = self.desk.rules
        rules.hold, rules.comment = settings.hold, settings.keepalive_comment
        rules.continue_ = settings.continue_
        self.desk.lobby.most = settings.queue

    async def answer(self, request: Request, outlet: Outlet) -> None:
        """Answer one request that was let in."""
        state, saves = self.supervisor.state, not self._upkeep.closes_slots
        reply = closed(request, self.assignment.serving, state, saves=saves)
        if reply is None:
            await self.desk.answer(request, outlet)
        else:
            self.ledger.receive().end(reply.outcome)
            outlet.begin(reply.status, reply.headers, len(reply.body))
            outlet.write(reply.body)
            outlet.end()

    def start(self) -> None:
        """Start the engine, and what is done beside its requests."""
        self.supervisor.start()
        self._tending = asyncio.get_running_loop().create_task(self._upkeep.tend(self.supervisor))

    async def drain(self, seconds: float) -> None:
        """Let requests finish for so long, then tell those that are left, and end the engine."""
        self.desk.rules.draining = self.supervisor.draining = True
        deadline = time.monotonic() + seconds
        while self.ledger.in_flight and time.monotonic() < deadline:
            await asyncio.sleep(_LOOK)
        await self.desk.stop()
        await self.supervisor.stop()

    async def close(self) -> None:
        """What is left once the engine is gone."""
        if self._tending is not None:
            self._tending.cancel()
            await asyncio.gather(self._tending, return_exceptions=True)
        await asyncio.gather(*self._keeping, return_exceptions=True)
        self._stack.close()

    def _heard(self, last: bytes) -> None:
        contexts = self._upkeep.contexts
        if contexts is not None and contexts.waits_for_proof:
            contexts.heard(last)

    def _became(self, incident: str, what: str) -> None:
        self.supervisor.incidents.count(incident, **{what: 1})

    def _on_incident(self, incident: Incident) -> None:
        self._upkeep.incident(incident)
        self._keep(incident)

    def _defaults(self) -> Defaults:
        run = self.supervisor.run
        if run is not None and run.live is not None:
            return run.live.defaults
        return Defaults(build=self.assignment.build, prefix=self.assignment.serving.prefix)

    def _readings(self) -> Mapping[str, Reading]:
        run = self.supervisor.run
        if run is None or run.pid is None:
            return {}
        limit = self.supervisor.options.limit
        return readings(time.monotonic(), run.pid, run.memory, limit)

    def _keep(self, incident: Incident) -> None:
        """Keep an incident, in a thread; of several changes the last one counts."""
        waiting = bool(self._kept)
        self._kept[incident.id] = incident
        if not waiting:
            task = asyncio.get_running_loop().create_task(self._save())
            self._keeping.add(task)
            task.add_done_callback(self._keeping.discard)

    async def _save(self) -> None:
        while self._kept:
            incident = self._kept[next(iter(self._kept))]
            try:
                await asyncio.to_thread(
                    self.assignment.store.save, incident, self.assignment.redactor
                )
            except ArrieroError as error:
                self._note(f"an incident is not kept: {error.message}")
            with suppress(KeyError):
                if self._kept[incident.id] is incident:
                    del self._kept[incident.id]


def access_of(assignment: Assignment, settings: Settings, keys: Keys) -> Access:
    """Who may ask, by these settings."""
    own = {assignment.listen.host.lower()} - {"", "0.0.0.0", "::"}  # noqa: S104 - taken out
    return Access(
        keys=keys,
        hosts=frozenset({*own, *(name.lower() for name in settings.allow_host)}),
        origins=frozenset(origin.lower() for origin in settings.allow_origin),
        prefix=assignment.serving.prefix,
        error_body=registry.error_body,
    )
