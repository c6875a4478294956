"""What one trial is asked to do, and what all trials of a command have in common."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from arriero.base.redact import Redactor
from arriero.command import Command
from arriero.engine import Engine
from arriero.process import Limit
from arriero.trial.load import Workload


@dataclass(frozen=True)
class Patience:
    """How long a trial waits, in seconds.

    ``stall_s`` limits the time in which nothing at all happens while loading: no log line, no CPU
    time, no page read. A large model that is still being read does not hang. ``whole_s`` is for the
    whole trial, from its start to its last answer.
    """

    ready_s: float = 1800.0
    stall_s: float = 60.0
    request_s: float = 120.0
    stop_s: float = 8.0
    whole_s: float = math.inf


@dataclass(frozen=True)
class Bench:
    """Everything that is the same for all trials."""

    engine: Engine
    limit: Limit | None
    scratch: Path
    cwd: Path
    redactor: Redactor
    host_free: int | None = None
    """Bytes free on the host before the first trial; a higher limit gives no more."""
    device_memory: Callable[[], Mapping[str, int]] = dict
    patience: Patience = field(default_factory=Patience)
    on_libraries: Callable[[Path], None] = lambda _: None
    """Called with the directory from which libllama was loaded, even by a wrapper script."""


@dataclass(frozen=True)
class TrialSpec:
    """The purpose of one trial and what it changes.

    ``change`` maps a flag to its values before and after, compared with the command as given.
    """

    n: int
    purpose: str
    command: Command
    change: Mapping[str, tuple[Any, Any]]
    env: Mapping[str, str] = field(default_factory=dict)
    workload: Workload = field(default_factory=Workload)
