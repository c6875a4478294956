"""A plan beside a real server's own log lines."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from arriero.base.sizes import MIB
from arriero.base.words import Component
from arriero.command import builtin_flags, parse_command
from arriero.engine import Engine
from arriero.engine.installation import describe
from arriero.gguf import Header, read_header
from arriero.machine import Pool
from arriero.memory import DryRuns, Planner
from arriero.record import Plan

LINE: float = 0.0051
"""Half of the last digit that the engine prints."""
_LOGGED = {
    Component.WEIGHTS: "model",
    Component.KV: "KV",
    Component.RS: "RS",
    Component.COMPUTE: "compute",
    Component.OUTPUT: "output",
}
ROOMY = Pool("host", ("host",), 1 << 40, 1 << 40, "a test")


def engine_of(server: Path) -> Engine:
    environ = {**os.environ, "LD_LIBRARY_PATH": str(server.parent)}
    return describe(server, "test", environ)


def plan(
    model: Path,
    args: str = "",
    *,
    engine: Engine | None = None,
    pools: Sequence[Pool] = (ROOMY,),
    build: int | None = None,
    environ: Mapping[str, str] | None = None,
    draft: Header | None = None,
) -> Plan:
    flags = engine.flags if engine else builtin_flags()
    words = ["llama-server", "-m", str(model), *shlex.split(args)]
    environ = environ if environ is not None else dict(os.environ)
    return Planner(
        read_header(model),
        pools,
        model=model,
        answers=DryRuns.of(engine, environ) if engine else None,
        build=engine.build if engine else build,
        draft=draft,
    ).plan(parse_command(words, flags, environ))


def differences(
    planned: Plan, logged: Mapping[tuple[str, str], float], *, compute: bool = True
) -> list[str]:
    """Sizes that a plan and a log do not share, to the last digit that the engine prints."""
    sizes: dict[tuple[str, str], float] = {}
    for buffer in planned.buffers:
        kind = _LOGGED.get(buffer.component)
        if kind is not None and buffer.bytes is not None and (compute or kind != "compute"):
            key = (kind, buffer.device)
            sizes[key] = sizes.get(key, 0.0) + buffer.bytes / MIB
    told = {key: mib for key, mib in logged.items() if compute or key[0] != "compute"}
    return [
        f"{kind} on {device}: planned {sizes.get((kind, device), 0.0):.4f}, "
        f"logged {told.get((kind, device), 0.0):.2f}"
        for kind, device in sorted({*sizes, *told})
        # two caches of one kind are two rounded lines
        if abs(sizes.get((kind, device), 0.0) - told.get((kind, device), 0.0))
        > LINE * (2 if kind == "KV" else 1)
    ]
