"""Incidents of one supervised engine, from the loss to the return."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Final

import msgspec

from arriero.base.redact import Redactor
from arriero.base.words import Recovery
from arriero.record.incident import Incident
from arriero.record.status import MemoryUse
from arriero.serve.supervisor.log import shown
from arriero.serve.supervisor.run import Run
from arriero.serve.supervisor.verdict import Verdict, signal_of
from arriero.store import new_id

KEPT: Final = 200
Tell = Callable[[Incident], None]


class Incidents:
    """The last incidents, oldest first. ``tell`` hears of each change of one."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._all: deque[Incident] = deque(maxlen=KEPT)
        self._open: str | None = None
        self._lost_at = 0.0

    def __iter__(self) -> Iterator[Incident]:
        return iter(self._all)

    @property
    def ids(self) -> tuple[str, ...]:
        """Newest first."""
        return tuple(incident.id for incident in reversed(self._all))

    def get(self, id: str) -> Incident | None:
        return next((incident for incident in self._all if incident.id == id), None)

    def add(self, incident: Incident, lost_at: float) -> None:
        """A loss. One that is still open (the restart failed too) ends with it."""
        self.close(complete=True)
        self._all.append(incident)
        self._open, self._lost_at = incident.id, lost_at
        self._tell(incident)

    def decided(self, action: Recovery, why: str, change: str) -> None:
        """What is done about the last one."""
        self._change(self._open, action=action, why=why, change=change)
        if action is Recovery.GIVE_UP:
            self.close(complete=True)

    def close(self, *, complete: bool, back: bool = False) -> None:
        """The engine is back, or will not be."""
        if self._open is not None:
            down = round(time.monotonic() - self._lost_at, 3) if back else None
            self._change(self._open, complete=complete, down_s=down)
            self._open = None

    def count(
        self, id: str | None, *, replayed: int = 0, continued: int = 0, error_events: int = 0
    ) -> None:
        """What became of requests that the engine had."""
        incident = self.get(id) if id else None
        if incident is not None:
            was = incident.requests
            requests = msgspec.structs.replace(
                was,
                replayed=was.replayed + replayed,
                continued=was.continued + continued,
                error_events=was.error_events + error_events,
            )
            self._change(incident.id, requests=requests)

    def _change(self, id: str | None, **changes: object) -> None:
        for n, incident in enumerate(self._all):
            if incident.id == id:
                self._all[n] = msgspec.structs.replace(incident, **changes)
                self._tell(self._all[n])


def incident_of(
    run: Run, found: Verdict, *, requests: int, build: int | None, secrets: Iterable[str]
) -> Incident:
    """The incident of a start that is gone."""
    redactor = Redactor.for_this_machine(secrets=tuple(secrets))
    at = datetime.now(UTC)
    held, speed = run.log.held, run.log.speed
    own = run.condemned is not None
    status = None if run.exit is None or run.exit.status < 0 or own else run.exit.status
    incident = Incident(
        id=new_id("inci"),
        at=at.isoformat(timespec="seconds").replace("+00:00", "Z"),
        verdict=redactor.scrub(found.failure, share=True),
        signal=None if own else signal_of(run.exit),
        status=status,
        build=build,
        argv=run.argv,
        up_s=None if run.ready_at is None else round(time.monotonic() - run.ready_at, 3),
        lost_context_tokens=held if run.ready_at is not None else None,
        reread_s=round(held / speed, 1) if held and speed else None,
        memory=memory_of(run),
        log=shown(run.log.tail(), redactor),
        complete=False,
    )
    return msgspec.structs.replace(
        incident, requests=msgspec.structs.replace(incident.requests, in_flight=requests)
    )


def memory_of(run: Run) -> tuple[MemoryUse, ...]:
    """What it took when it was last seen."""
    taken = run.memory.anonymous or run.memory.rss
    return () if taken is None else (MemoryUse(pool="host", actual=taken),)
