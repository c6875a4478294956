"""The devices that an engine lists."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from arriero.base.errors import EngineError
from arriero.base.sizes import MIB
from arriero.engine.installation import Engine
from arriero.process import Completed, ProcessError, run

_DEVICE: Final = re.compile(r"\s+(\S+): (.*) \((\d+) MiB, (\d+) MiB free\)\s*\Z")
_LIST_SECONDS: Final = 120.0
"""Long enough for drivers to initialise every card and for connections to workers."""
_SKEWED: Final = re.compile(r"RPC server version mismatch: (\d+\.\d+\.\d+)")
_DROPPED: Final = re.compile(_SKEWED.pattern + r"\s*\n.*Failed to connect to (\S+)")
_ABORTED: Final = re.compile(r"RPC handshake failed for (\S+)")
_LEFT_OUT: Final = re.compile(r"(?:Failed to connect to|RPC handshake failed for) (\S+)")


@dataclass(frozen=True)
class ListedDevice:
    """A device, by its name for ``-dev``; sizes in bytes (the engine prints whole MiB)."""

    name: str
    description: str
    total: int
    free: int


def list_devices(
    engine: Engine, environ: Mapping[str, str], *, rpc: str | None = None
) -> tuple[ListedDevice, ...] | None:
    """The output of ``--list-devices``; None if the engine has no such flag, as in 2024.

    The CPU is not listed. A worker that cannot be reached, or has another version, is missing from
    the list without an error: the engine only logs it (seen on builds 10068 and 10434).

    Args:
        rpc: The workers, as given to ``--rpc``.

    Raises:
        EngineError: The engine does not answer, or ends with an error.
    """
    if not engine.knows("--list-devices"):
        return None
    answer = _asked(engine, environ, rpc)
    if answer.status != 0:
        raise _failed(engine, answer)
    return parse_devices(answer.stdout)


@dataclass(frozen=True)
class Refusal:
    """How an engine refuses a worker with another protocol version.

    ``version`` is the worker's; it is empty if the engine ended before printing it. ``fatal`` means
    that the engine aborts instead of continuing without the worker.
    """

    version: str
    fatal: bool


def ask_workers(
    engine: Engine, environ: Mapping[str, str], workers: Sequence[str]
) -> tuple[tuple[ListedDevice, ...] | None, dict[str, Refusal]]:
    """All devices, those of usable workers included, and the workers that the engine refuses.

    Newer builds (seen on 11434) abort at the first worker that they cannot use. Then the engine is
    asked again without it.

    Raises:
        EngineError: The engine does not answer, or ends with an error that names no worker.
    """
    if not engine.knows("--list-devices"):
        return None, {}
    left, refused = list(workers), dict[str, Refusal]()
    while True:
        answer = _asked(engine, environ, ",".join(left))
        refused |= _refused(answer)
        if answer.status == 0:
            return parse_devices(answer.stdout), refused
        named = set(_LEFT_OUT.findall(answer.stderr)) & set(left)
        if not named:
            raise _failed(engine, answer)
        left = [worker for worker in left if worker not in named]


def _refused(answer: Completed) -> dict[str, Refusal]:
    if answer.status == 0:
        dropped = _DROPPED.finditer(answer.stderr)
        return {match[2]: Refusal(match[1], fatal=False) for match in dropped}
    said = _SKEWED.search(answer.stderr)  # logged by a thread: before or after the abort's own line
    version = said[1] if said else ""
    return {match[1]: Refusal(version, fatal=True) for match in _ABORTED.finditer(answer.stderr)}


def _asked(engine: Engine, environ: Mapping[str, str], rpc: str | None) -> Completed:
    workers = ["--rpc", rpc] if rpc else []
    # Variables of flags are left out: one that does not go with the list would end the engine.
    env = {name: value for name, value in environ.items() if not name.startswith("LLAMA_ARG_")}
    try:
        return run(
            [engine.path, *workers, "--list-devices"],
            env={**engine.environment(env), "GGML_NO_BACKTRACE": "1"},
            timeout=_LIST_SECONDS,
        )
    except ProcessError as error:
        raise EngineError(error.message, hint=error.hint, id=f"engine-{error.id}") from None


def _failed(engine: Engine, answer: Completed) -> EngineError:
    lines = [line.strip() for line in answer.stderr.splitlines() if line.strip()]
    return EngineError(
        f"{engine.path} --list-devices ended with {answer.status}"
        + (f": {lines[-1][:200]}" if lines else ""),
        hint="check the drivers, and the workers of the command",
        id="engine-devices",
    )


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
