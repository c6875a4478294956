"""An engine as the records have it, and whether it is one for the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from arriero.base.words import Kind
from arriero.logs.model import Cpu, Failure
from arriero.record import EngineRecord

if TYPE_CHECKING:
    from arriero.command import Command
    from arriero.engine import Engine
    from arriero.machine import Misfit


def engine_record(engine: Engine) -> EngineRecord:
    return EngineRecord(
        path=str(engine.path),
        found_by=engine.found_by,
        version=engine.version,
        build=engine.build,
        commit=engine.commit,
        backends=engine.backends,
    )


def misfit_of(engine: Engine, command: Command) -> Misfit | None:
    """What the engine was compiled for that the CPU it would run on lacks.

    None where it lacks nothing, and where one of both is not known.
    """
    from arriero.engine import compiled_for
    from arriero.machine import cpu_behind, misfit

    environ = command.exec_environ
    needs = compiled_for(engine, environ)
    return None if needs is None else misfit(needs, cpu_behind(command.wrapper, environ))


def failure_of(found: Misfit) -> Failure:
    """The failure that a start would end with, known without one."""
    return Failure(
        kind=Kind.ENVIRONMENT,
        fatal=True,
        line=0,
        text=f"compiled for {found.told}",
        not_this=("lack of memory", "the model file"),
        cpu=Cpu(needs=found.needs, lacks=found.lacks),
    )
