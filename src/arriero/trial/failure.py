"""The failure of a trial: what its log names, otherwise what was seen from outside."""

from __future__ import annotations

import signal
from contextlib import suppress
from typing import Final

import msgspec

from arriero.base.words import Evidence, Kind, LimitKind, Phase
from arriero.command import Command
from arriero.engine import Engine, compiled_for, is_binary
from arriero.logs.model import Cpu, Failure, Reading
from arriero.machine import cpu_behind, misfit
from arriero.process import Exit, Limit
from arriero.trial.replies import Reply, kind_of

_SIGKILL: Final = 9
"""``signal.SIGKILL``, which Windows lacks."""
_NO_SPACE_FOR: Final = (
    "Resource temporarily unavailable",
    "failed to map segment from shared object",
    "Cannot allocate memory",
)
"""Messages of a thread or the dynamic loader when nothing more can be mapped."""


def name_failure(
    reading: Reading,
    end: Exit | None,
    hang: str | None,
    broken: Reply | None,
    lines: int,
    phase: Phase | None,
) -> Failure:
    """The failure of a trial: the one in the log, otherwise what was seen from outside."""
    named = reading.failure
    if named is not None and (named.fatal or broken is not None or end is not None):
        return named
    if hang is not None:
        return Failure(
            kind=Kind.HANG, phase=phase, fatal=True, line=lines, text=hang,
            evidence=Evidence.INFERRED,
        )  # fmt: skip
    if end is not None and end.oom_kills:
        return Failure(
            kind=Kind.KILLED, phase=phase, fatal=True, line=lines,
            text="killed by the kernel: the memory cgroup reached its limit",
            evidence=Evidence.INFERRED,
        )  # fmt: skip
    if broken is not None and end is None:
        return Failure(
            kind=kind_of(broken), phase=Phase.SERVING, fatal=False, line=lines, text=broken.error
        )
    status = end.status if end is not None else 0
    text = f"ended with {describe_status(status)} and the log names no cause"
    kind = Kind.KILLED if status == -_SIGKILL else Kind.CRASH if status < 0 else Kind.ENVIRONMENT
    return Failure(
        kind=kind, phase=phase, fatal=True, line=lines, text=text, evidence=Evidence.INFERRED
    )


def at_the_limit(failure: Failure, limit: Limit | None) -> Failure:
    """Blame the limit if a thread cannot start or a library cannot be mapped: no address space.

    The log alone cannot tell: the same words can mean a limit on the number of processes, or a
    damaged library.
    """
    refused = failure.kind is Kind.ENVIRONMENT and any(t in failure.text for t in _NO_SPACE_FOR)
    if not refused or limit is None or limit.kind is not LimitKind.ADDRESS_SPACE:
        return failure
    return msgspec.structs.replace(
        failure, kind=Kind.RUNTIME_ALLOCATION, component=None, evidence=Evidence.INFERRED,
        not_this=tuple(t for t in failure.not_this if "memory" not in t),
    )  # fmt: skip


def on_this_cpu(failure: Failure, engine: Engine, command: Command) -> Failure:
    """Decide for an illegal instruction whether this CPU lacks the feature that it belongs to.

    Programs also use one to end themselves on purpose. If the CPU has all features for which the
    engine was compiled, it is a crash; if the CPU is unknown, the log's verdict stays.
    """
    if failure.cpu is None:
        return failure
    environ = command.exec_environ
    needs = failure.cpu.needs or compiled_for(engine, environ) or ()
    cpu = cpu_behind(command.wrapper, environ) if is_binary(engine) else None
    if not needs or cpu is None or not cpu.knows(needs):
        return msgspec.structs.replace(failure, cpu=Cpu(needs=needs))
    found = misfit(needs, cpu)
    if found is None:
        return msgspec.structs.replace(failure, kind=Kind.CRASH, cpu=None)
    return msgspec.structs.replace(failure, cpu=Cpu(needs=found.needs, lacks=found.lacks))


def describe_status(status: int) -> str:
    """``exit status 1`` or the name of the signal."""
    if status < 0:
        with suppress(ValueError):
            return signal.Signals(-status).name
    return f"exit status {status}"
