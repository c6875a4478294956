"""What a supervisor is given: settings, and the functions that other parts put in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from arriero.base.words import Recovery
from arriero.command import Command
from arriero.logs.model import Failure
from arriero.process import Limit
from arriero.record.event import Event
from arriero.record.incident import Incident
from arriero.serve.http.interface import Address, Upstream
from arriero.serve.supervisor.interface import Live
from arriero.serve.supervisor.policy import Policy

Connect = Callable[[Address], Upstream]
"""Makes the connections to one start."""


@dataclass(frozen=True)
class Alternative:
    """Another command to run, since the same one would fail again."""

    command: Command
    recovery: Recovery
    """``SMALLER`` or ``WITHOUT_WORKER``."""
    change: str
    """As a person would type it: ``-np 2``."""


Choose = Callable[[Command, Failure], Alternative | None]
"""Which command follows a failure by memory or by a worker; None for the same one.

It runs in a thread and may plan. Where the same command fits again, it answers None.
"""


async def _nothing(live: Live) -> None:
    pass


@dataclass(frozen=True)
class Hooks:
    """Functions that other parts put in. Those without ``async`` are called in the event loop.

    Attributes:
        event: Hears ``ready`` and ``incident``; the others are not the supervisor's.
        incident: Hears of each change of an incident, the first one included.
        ready: Awaited with a start that has answered, before requests get it: slots are restored.
        lost: Called when a start is gone: True if it crashed, was killed or hung, False if it was
            ended on purpose, after ``leaving``.
        leaving: Awaited before a start that answers is ended on purpose: slots are saved.
        choose: See :data:`Choose`.
    """

    event: Callable[[Event], None] = field(default=lambda event: None)
    incident: Callable[[Incident], None] = field(default=lambda incident: None)
    ready: Callable[[Live], Awaitable[None]] = _nothing
    leaving: Callable[[Live], Awaitable[None]] = _nothing
    lost: Callable[[bool], None] = field(default=lambda crashed: None)
    choose: Choose = field(default=lambda command, failure: None)


@dataclass(frozen=True)
class Options:
    """Settings of a supervisor, in seconds.

    Attributes:
        hang_after: Without any sign of work, while it has requests.
        load_stall: The same while it loads.
        drain: For the requests it has, before a restart on purpose.
        grace: For its own end when it is stopped.
    """

    cwd: Path
    policy: Policy = field(default_factory=Policy)
    hang_after: float = 60.0
    load_stall: float = 180.0
    drain: float = 30.0
    grace: float = 10.0
    limit: Limit | None = None
