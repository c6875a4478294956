"""What a server that stays up is told to do: everything that was decided before its start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from arriero.base.redact import Redactor
from arriero.command import Command
from arriero.engine import Engine
from arriero.launch.serving import Serving
from arriero.logs.model import Failure
from arriero.record.event import Event
from arriero.record.plan import PlanPool
from arriero.record.status import Gate
from arriero.serve.settings import Listen, Settings
from arriero.serve.settings_sources import Sources
from arriero.store import Store


@dataclass(frozen=True, slots=True)
class Smaller:
    """A command that takes less memory, or does without a worker, and what it has different."""

    command: Command
    change: str
    """As people read it: ``-np 4 -> 2``."""


NextSmaller = Callable[[Command, Failure | None], Smaller | None]
"""The next command that takes less than this one where the failure shows that memory was short,
and is planned to fit what is free now; None where there is none. It plans, so it takes seconds:
call it in a thread, once the memory of the engine is back."""

WithoutWorkers = Callable[[Command, frozenset[str]], Smaller | None]
"""The command without these workers (``host:port``), if that is planned to fit; None if not. It
plans, too."""


def _none(*_: object) -> None:
    return None


@dataclass(frozen=True)
class Assignment:
    """One engine to keep running, and how to serve it.

    Attributes:
        command: What to run, with gates applied: as the user wrote it, with the model's options
            and with the options that say where to listen still in it. The engine gets others of
            these (a private socket); its flags are those of ``engine``.
        engine: The installation that runs it. Start it with ``engine.environment(...)``.
        serving: As clients knew it from the command: keys, prefix, TLS, mode.
        listen: Where clients connect.
        tls: The files of the certificate and of its key; None for plain HTTP.
        settings: As they were at the start.
        sources: Read them again with ``sources.settings()`` at SIGHUP.
        gates: What was changed in ``command``, told already.
        pools: Planned for ``command``; empty where nothing could be planned.
        build: Of the engine; None if it is not known.
        model: The model's file, without its directory; empty for a router.
        redactor: Knows the secrets of the command and of the key files.
        store: Where incidents are kept.
        environ: To run the engine in; without Arriero's own variables.
        cwd: Where the command's relative paths start.
        smaller: Policy after a lack of memory.
        without: Policy after the loss of a worker.
    """

    command: Command
    engine: Engine
    serving: Serving
    listen: Listen
    tls: tuple[Path, Path] | None
    settings: Settings
    sources: Sources = field(repr=False)
    gates: tuple[Gate, ...]
    pools: tuple[PlanPool, ...]
    build: int | None
    model: str
    redactor: Redactor = field(repr=False)
    store: Store = field(repr=False)
    environ: Mapping[str, str] = field(repr=False)
    cwd: Path
    smaller: NextSmaller = field(default=_none, repr=False)
    without: WithoutWorkers = field(default=_none, repr=False)


Tell = Callable[[Event], None]
"""Takes every event, in order; must not block."""

Note = Callable[[str], None]
"""Takes one line for people."""

Serve = Callable[[Assignment, Tell, Note], int]
"""``arriero.serve.server.serve``: runs until it is told to stop, or gives up; the exit status.

It tells ``listening``, ``ready``, ``incident`` and ``stopped`` (last), and the gates that come
later; the gates of the assignment have been told by its caller.
"""
