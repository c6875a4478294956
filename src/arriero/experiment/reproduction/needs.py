"""What a reproduction needs of a machine and an engine."""

from __future__ import annotations

import platform
import sys
from typing import Final

from arriero.base.errors import EngineError
from arriero.engine import Engine, compiled_for, list_devices
from arriero.engine.devices import ask_workers
from arriero.experiment.reproduction.started import HIDDEN, CannotRunError, worker
from arriero.gotchas.model import EngineRun, Needs, Reproduction
from arriero.machine import cpu_behind, misfit
from arriero.process import clean_environment

FIRST_VULKAN: Final = {"GGML_VK_VISIBLE_DEVICES": "0"}


def require(reproduction: Reproduction, engine: Engine, other: Engine | None) -> None:
    """Raise if something is missing; ``other`` is an engine of another build.

    Raises:
        CannotRunError: It says what.
    """
    for need in reproduction.needs:
        match need:
            case Needs.VULKAN:
                if not vulkan_device(engine):
                    raise CannotRunError("there is no Vulkan device")
            case Needs.RPC_SERVER:
                if engine.rpc_server is None:
                    raise CannotRunError("there is no ggml-rpc-server beside the engine")
            case Needs.OTHER_BUILD:
                _require_skew(engine, other)
            case Needs.OTHER_CPU:
                _require_other_cpu(reproduction.run, engine, other)
            case Needs.ADDRESS_SPACE:
                if sys.platform != "linux":
                    raise CannotRunError("address space cannot be limited here")
    known = engine.flags
    for run in (reproduction.run, reproduction.control):
        for word in run.flags.split():
            missing = word.startswith("-") and not word[1:2].isdigit()
            if missing and not known.knows(word) and word not in reproduction.unknown:
                raise CannotRunError(f"this engine has no {word}")


def _require_skew(engine: Engine, other: Engine | None) -> None:
    if other is None or other.build == engine.build:
        raise CannotRunError("needs --worker-engine of another build")
    with worker(other, {}, None) as (endpoint, _):
        _, refused = ask_workers(engine, {**clean_environment(), **HIDDEN}, [endpoint])
    if endpoint not in refused:
        raise CannotRunError(
            f"build {engine.build} takes workers of build {other.build}:"
            " needs --worker-engine of another protocol"
        )


def _require_other_cpu(run: EngineRun, engine: Engine, other: Engine | None) -> None:
    """That the CPU behind the run's words is none for this engine, and one for the other."""
    environ, words = clean_environment(), run.behind.split()
    cpu = cpu_behind(words, environ)
    if cpu is None:
        raise CannotRunError(f"there is no {words[0]} here, or it does not say what it can do")
    if misfit(compiled_for(engine, environ), cpu) is None:
        raise CannotRunError("this engine was compiled for nothing that such a CPU lacks")
    if other is None or misfit(compiled_for(other, environ), cpu) is not None:
        raise CannotRunError("needs --worker-engine of a build for such a CPU")


def vulkan_device(engine: Engine) -> str:
    """The first Vulkan device; empty without one."""
    environ = {**clean_environment(), **HIDDEN, **FIRST_VULKAN}
    try:
        found = list_devices(engine, environ) or ()
    except EngineError:
        return ""
    return next((d.description for d in found if d.name.startswith("Vulkan")), "")


def machine(reproduction: Reproduction, engine: Engine, other: Engine | None) -> str:
    """The machine, in the words of a verdict."""
    parts = [f"{platform.system()} {platform.machine()}", reproduction.run.behind or "CPU"]
    if Needs.VULKAN in reproduction.needs:
        parts[1] = f"Vulkan: {vulkan_device(engine) or 'none'}"
    if Needs.RPC_SERVER in reproduction.needs:
        of = ""
        if Needs.OTHER_BUILD in reproduction.needs and other is not None:
            of = f" of build {other.build}"
        parts.append(f"workers{of} on this machine")
    return ", ".join(parts)
