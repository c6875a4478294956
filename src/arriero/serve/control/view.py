"""One supervised engine and its requests, as the control endpoints see them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from arriero import __version__
from arriero.record import Incident, RequestCounts, Status
from arriero.serve.assignment import Assignment
from arriero.serve.control.memory import Reading, memory_uses
from arriero.serve.supervisor.probe import ask
from arriero.serve.supervisor.supervisor import Supervisor

LINES: Final = 300
_PATIENCE: Final = 1.0
"""Seconds that the engine has for an answer."""


def _no_readings() -> Mapping[str, Reading]:
    return {}


class ServerView:
    """Implements :class:`arriero.serve.control.interface.View`.

    Args:
        assignment: What was decided before the start.
        supervisor: Keeps the engine.
        counts: The account of requests.
        readings: Memory now, by pool.
    """

    def __init__(
        self,
        assignment: Assignment,
        supervisor: Supervisor,
        counts: Callable[[], RequestCounts],
        readings: Callable[[], Mapping[str, Reading]] = _no_readings,
    ) -> None:
        self._assignment, self._supervisor = assignment, supervisor
        self._counts, self._readings = counts, readings
        self._began = time.monotonic()

    @property
    def asleep(self) -> bool:
        run = self._supervisor.run
        return run is not None and run.log.sleeping

    def status(self) -> Status:
        supervisor, given = self._supervisor, self._assignment
        run = supervisor.run
        alive = run is not None and run.alive
        return Status(
            state=supervisor.state,
            why=supervisor.gave_up or supervisor.why,
            version=__version__,
            at=datetime.now(UTC).isoformat(timespec="seconds"),
            up_s=round(time.monotonic() - self._began, 3),
            model=given.model,
            engine=supervisor.view(),
            gates=given.gates,
            requests=self._counts(),
            memory=memory_uses(
                given.pools,
                self._readings() if alive else {},
                run.memory.rss if run is not None and alive else None,
            ),
            incidents=supervisor.incidents.ids,
        )

    def incidents(self) -> Sequence[Incident]:
        return tuple(reversed([*self._supervisor.incidents]))

    def log(self) -> Sequence[str]:
        run = self._supervisor.run
        return () if run is None else run.log.tail(LINES)

    async def ask(self, path: str) -> bytes | None:
        run = self._supervisor.run
        if run is None or run.live is None or not run.alive:
            return None
        prefix = self._assignment.serving.prefix
        answer = await ask(run.live.upstream, "GET", prefix + path, None, _PATIENCE)
        return answer.body if answer.status == 200 else None
