"""The devices that an engine lists."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from arriero.base.errors import EngineError
from arriero.base.sizes import MIB
from arriero.engine.installation import Engine
from arriero.process import ProcessError, run

_DEVICE: Final = re.compile(r"\s+(\S+): (.*) \((\d+) MiB, (\d+) MiB free\)\s*\Z")
_LIST_SECONDS: Final = 120.0
"""Drivers initialise every card here, and workers are connected to."""


@dataclass(frozen=True)
class ListedDevice:
    """A device by the name that ``-dev`` takes, sizes in bytes (whole MiB as printed)."""

    name: str
    description: str
    total: int
    free: int


def list_devices(
    engine: Engine, environ: Mapping[str, str], *, rpc: str | None = None
) -> tuple[ListedDevice, ...] | None:
    """What ``--list-devices`` says; null where the engine has no such flag, as in 2024.

    The CPU is not listed. A worker that cannot be reached, or is of another version, is missing
    from the list without an error: the engine only logs it (seen on builds 10068 and 10434).

    Args:
        rpc: Workers as the command gives them to ``--rpc``.

    Raises:
        EngineError: It does not answer, or ends with an error.
    """
    if not engine.knows("--list-devices"):
        return None
    workers = ["--rpc", rpc] if rpc else []
    # Variables of flags are left out: one that does not suit the list would end the engine.
    env = {name: value for name, value in environ.items() if not name.startswith("LLAMA_ARG_")}
    try:
        answer = run(
            [engine.path, *workers, "--list-devices"],
            env=engine.environment(env),
            timeout=_LIST_SECONDS,
        )
    except ProcessError as error:
        raise EngineError(error.message, hint=error.hint, id=f"engine-{error.id}") from None
    if answer.status != 0:
        lines = [line.strip() for line in answer.stderr.splitlines() if line.strip()]
        raise EngineError(
            f"{engine.path} --list-devices ended with {answer.status}"
            + (f": {lines[-1][:200]}" if lines else ""),
            hint="does a driver or a worker of the command fail?",
            id="engine-devices",
        )
    return parse_devices(answer.stdout)


def parse_devices(text: str) -> tuple[ListedDevice, ...]:
    """Read the list of devices; other lines, such as those of backends, are skipped."""
    found = (_DEVICE.match(line) for line in text.splitlines())
    return tuple(
        ListedDevice(
            name=match.group(1),
            description=match.group(2),
            total=int(match.group(3)) * MIB,
            free=int(match.group(4)) * MIB,
        )
        for match in found
        if match
    )
