"""Why an engine was lost: its log, its end, and what the kernel says."""

from __future__ import annotations

import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from arriero.base.words import Evidence, Kind, Phase
from arriero.logs.model import Failure, Reading
from arriero.machine import files
from arriero.machine.host import ROOT
from arriero.process.cgroup import own
from arriero.process.model import Exit
from arriero.serve.supervisor.policy import MEMORY
from arriero.trial.failure import describe_status, name_failure

_FROM_OUTSIDE: Final = (1, 2, 9, 15)
"""SIGHUP, SIGINT, SIGKILL, SIGTERM: what is sent to a process, which it does not do to itself."""
OOM_TEXT: Final = "killed by the kernel: memory was used up"


@dataclass(frozen=True)
class Condemned:
    """That and why Arriero ended it.

    Attributes:
        kind: ``HANG``, ``BACKEND`` (it answers errors alone) or ``STATE_GROWTH`` (memory).
        blames_requests: What it had to do can be the cause.
        wanted: It is to be started again, and nothing failed yet.
    """

    kind: Kind
    why: str
    blames_requests: bool = False
    wanted: bool = False


@dataclass(frozen=True)
class Verdict:
    """Why it was lost."""

    failure: Failure
    blames_requests: bool
    memory: bool
    """Memory was the cause."""


def verdict(
    reading: Reading,
    phase: Phase | None,
    end: Exit | None,
    condemned: Condemned | None,
    *,
    lines: int,
    oom: bool,
) -> Verdict:
    """Why an engine was lost. ``oom``: the kernel killed for memory meanwhile."""
    named = reading.failure
    if condemned is not None:
        failure = _condemned(condemned, named, phase, lines)
        return Verdict(failure, condemned.blames_requests, failure.kind in MEMORY)
    status = end.status if end is not None else 0
    outside = status == 0 or -status in _FROM_OUTSIDE
    if oom and status == -9:
        failure = _seen(Kind.KILLED, OOM_TEXT, phase, lines)
        return Verdict(failure, blames_requests=phase is Phase.SERVING, memory=True)
    if named is not None and named.fatal and named.kind is not Kind.KILLED:
        return Verdict(named, named.kind is not Kind.RPC, named.kind in MEMORY)
    if outside and phase is Phase.SERVING:
        how = "with exit status 0, as if asked to" if status == 0 else describe_status(status)
        text = f"ended {how}" if status == 0 else f"ended from outside with {how}"
        return Verdict(_seen(Kind.KILLED, text, phase, lines), False, False)
    mild = msgspec.structs.replace(reading, failure=None) if outside else reading
    failure = name_failure(mild, end, None, None, lines, phase)
    return Verdict(failure, not outside and failure.kind is not Kind.RPC, failure.kind in MEMORY)


def _condemned(
    condemned: Condemned, named: Failure | None, phase: Phase | None, lines: int
) -> Failure:
    """What the log names says more of an engine that answers errors; of a hang it says nothing."""
    if condemned.kind is Kind.BACKEND and named is not None:
        return msgspec.structs.replace(named, fatal=True)
    return _seen(condemned.kind, condemned.why, phase, lines)


def _seen(kind: Kind, text: str, phase: Phase | None, lines: int) -> Failure:
    return Failure(
        kind=kind, phase=phase, fatal=True, line=lines, text=text, evidence=Evidence.INFERRED
    )


def signal_of(end: Exit | None) -> str | None:
    """The name of the signal that ended it."""
    if end is None or end.status >= 0:
        return None
    with suppress(ValueError):
        return signal.Signals(-end.status).name
    return f"signal {-end.status}"


def oom_kills(root: Path = ROOT) -> int:
    """Processes that the kernel has killed for memory so far: on this machine, or in our cgroup."""
    count = files.table(root / "proc/vmstat").get("oom_kill", 0)
    group = own(root)
    if group is not None:
        count += files.table(group.path / group.events_file).get("oom_kill", 0)
    return count
