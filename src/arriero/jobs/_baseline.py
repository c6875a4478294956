"""What is true before the first start: engine, model, devices, memory, the effective command."""

from __future__ import annotations

import datetime as dt
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from arriero.base import limits
from arriero.base.errors import ArrieroError, ModelError, NotFoundError, UsageError
from arriero.base.paths import StrPath
from arriero.base.redact import Redactor
from arriero.command import Command, ModelSource, builtin_flags, parse_command
from arriero.engine import Engine, ListedDevice, find_engine, list_devices
from arriero.gguf import describe, read_header
from arriero.jobs._engine import engine_record
from arriero.launch import serving_of
from arriero.launch.placement import workers
from arriero.machine import Holder, Pool, holders, pools, visibility
from arriero.process import Limit
from arriero.record import (
    Baseline,
    DeviceRecord,
    HolderRecord,
    LimitRecord,
    ModelRecord,
    PoolRecord,
)

NO_COMMAND: Final = (
    "write the llama-server command after --, as in: arriero {} -- llama-server -m …"
)
_VARIED: Final = ("-np", "-c", "-ub", "-b", "-ngl", "-ncmoe", "-cram", "-ctxcp", "-kvu")
_ENDS_AT_ONCE: Final = (
    *("--help", "--version", "--license", "--list-devices", "--cache-list", "--completion-bash"),
)


@dataclass(frozen=True)
class Ground:
    """A command, the engine that will run it and everything known about both."""

    command: Command
    engine: Engine
    baseline: Baseline
    model_path: Path | None
    pools: tuple[Pool, ...]
    redactor: Redactor


def survey(
    words: Sequence[str],
    *,
    engine: StrPath | None,
    limit: Limit | None,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    verb: str = "diagnose",
) -> Ground:
    """Find out everything that can be known without starting the server.

    Raises:
        UsageError: No command, or one that cannot be run here (``docker``, ``ssh``, …).
        NotFoundError: No engine, or no model file where the command says.
        EngineError: The engine cannot be used.
        ModelError: The model file is damaged or something else.
    """
    environ = dict(os.environ if environ is None else environ)
    cwd = cwd or Path.cwd()
    if not words:
        raise UsageError("no command given", hint=NO_COMMAND.format(verb))
    command = parse_command(words, builtin_flags(), environ)
    found = find_engine(command.program, option=engine, environ=command.environ, cwd=cwd)
    command = command.with_flags(found.flags)
    refuse_other_uses(command)
    model_path, model = _model(command, cwd)
    devices = _devices(found, command)
    held = pools(devices)
    return Ground(
        command=command,
        engine=found,
        baseline=_baseline(command, found, model, devices, held, limit),
        model_path=model_path,
        pools=held,
        redactor=Redactor.for_this_machine(
            secrets={*command.secrets(), *serving_of(command, cwd).api_keys}
        ),
    )


def _devices(engine: Engine, command: Command) -> tuple[ListedDevice, ...]:
    """The engine's devices, with those of the command's workers."""
    rpc = ",".join(workers(command)) or None
    try:
        return list_devices(engine, command.environ, rpc=rpc) or ()
    except ArrieroError:
        # What ends --list-devices ends the server too; the trial will say how.
        return ()


def _baseline(
    command: Command,
    engine: Engine,
    model: ModelRecord | None,
    devices: Sequence[ListedDevice],
    held: Sequence[Pool],
    limit: Limit | None,
) -> Baseline:
    return Baseline(
        engine=engine_record(engine),
        model=model,
        devices=tuple(map(_device, devices)),
        pools=tuple(map(_pool, held)),
        holders=tuple(map(_holder, holders())),
        visibility=visibility(command.environ),
        argv=command.safe_argv(),
        effective=command.effective(),
        given=_given(command),
        limit=LimitRecord(bytes=limit.bytes, kind=limit.kind) if limit else None,
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        taken_at=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
    )


def _given(command: Command) -> dict[str, str]:
    """The values in force of the flags that trials vary, by the names that trials use."""
    effective = command.effective()
    flags = ((name, command.flags.get(name)) for name in _VARIED)
    named = {name: flag.canonical for name, flag in flags if flag is not None}
    return {name: effective[flag] for name, flag in named.items() if flag in effective}


def refuse_other_uses(command: Command) -> None:
    """Raise for a command that does not start one server with one model.

    Raises:
        UsageError: It only prints something, or starts a router.
    """
    refuse_printing(command)
    source, _ = command.model_source()
    if source is ModelSource.ROUTER:
        raise UsageError(
            "this command starts a router: each model is a process of its own with its own memory",
            hint="give the command of one model (llama-server -m FILE …)",
            id="router",
        )


def refuse_printing(command: Command) -> None:
    """Raise for a command that starts no server.

    Raises:
        UsageError: It only prints something.
    """
    only = next((flag for flag in _ENDS_AT_ONCE if command.has(flag)), None)
    if only is not None:
        raise UsageError(
            f"with {only} the server prints something and ends: there is nothing to run",
            hint=f"leave out {only}",
            id="ends-at-once",
        )


def _model(command: Command, cwd: Path) -> tuple[Path | None, ModelRecord | None]:
    """The model's header. A file that cannot be read is told before anything is started."""
    typed = command.model_path()
    if typed is None:
        return None, None
    path = cwd / limits.expanded(typed)
    if not path.exists():
        raise NotFoundError(
            f"there is no model file {typed}",
            hint="check the path, from this directory",
            id="no-model",
        )
    try:
        about = describe(read_header(path))
    except ModelError as error:
        if not path.is_file():  # an engine that opens a pipe waits for ever
            raise
        # The engine may still say more about it; the trial shows what it says.
        return path, ModelRecord(path=typed, problem=error.message, file_bytes=_size(path))
    return path, ModelRecord.of(typed, about)


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


def _device(device: ListedDevice) -> DeviceRecord:
    return DeviceRecord(
        name=device.name, description=device.description, total=device.total, free=device.free
    )


def _pool(pool: Pool) -> PoolRecord:
    return PoolRecord(
        name=pool.name,
        devices=pool.devices,
        total=pool.total,
        free=pool.free,
        limited_by=pool.limited_by,
        usable=pool.usable,
        note=pool.note,
    )


def _holder(holder: Holder) -> HolderRecord:
    return HolderRecord(pid=holder.pid, name=holder.name, device=holder.device, bytes=holder.bytes)
