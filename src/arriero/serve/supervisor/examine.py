"""What is found out about a start that is gone. In a thread: it reads a log and may plan."""

from __future__ import annotations

from arriero.base.words import Evidence, Kind, Phase
from arriero.engine import Engine
from arriero.launch import Serving
from arriero.logs.model import Failure
from arriero.record.incident import Incident
from arriero.serve.supervisor.incident import incident_of
from arriero.serve.supervisor.run import Run
from arriero.serve.supervisor.verdict import Verdict, oom_kills, verdict


class Examiner:
    """Finds out why a start is gone, and what could run instead."""

    def __init__(self, engine: Engine, serving: Serving) -> None:
        self._engine = engine
        self._serving = serving
        self._oom_kills = 0

    def begins(self) -> None:
        """A start begins: kills from now on may be its own."""
        self._oom_kills = oom_kills()

    def examine(self, run: Run, requests: int) -> tuple[Verdict, Incident]:
        """Why it is gone, and the incident."""
        found = self._verdict(run)
        incident = incident_of(
            run,
            found,
            requests=requests,
            build=self._engine.build,
            secrets={*self._serving.api_keys, *run.private.command.secrets()},
        )
        return found, incident

    def _verdict(self, run: Run) -> Verdict:
        if run.refused is not None:
            failure = Failure(
                kind=Kind.ENVIRONMENT, phase=Phase.ARGUMENTS, fatal=True, line=0,
                text=run.refused.message, evidence=Evidence.NAMED,
            )  # fmt: skip
            return Verdict(failure, blames_requests=False, memory=False)
        end = run.exit
        # how Arriero ended it says nothing of why
        status = end.status if end is not None and run.condemned is None else None
        reading, phase = run.log.read(status)
        oom = (end is not None and end.oom_kills > 0) or oom_kills() > self._oom_kills
        if run.ready_at is not None:
            phase = Phase.SERVING
        return verdict(reading, phase, end, run.condemned, lines=run.log.lines, oom=oom)
