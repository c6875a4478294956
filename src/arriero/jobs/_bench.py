"""What stays the same in all trials of a command, for the jobs that start some."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from arriero.jobs._baseline import Ground
from arriero.machine import device_memory, free_host_memory
from arriero.process import Limit
from arriero.trial import Bench, Patience


def bench_of(
    ground: Ground,
    scratch: Path,
    *,
    limit: Limit | None,
    patience: Patience,
    found: Callable[[Path], None],
) -> Bench:
    """The bench for a command that was surveyed.

    Args:
        found: Told where a trial's engine has its libraries.
    """
    return Bench(
        engine=ground.engine,
        limit=limit,
        host_free=free_host_memory(ground.pools),
        scratch=scratch,
        cwd=Path.cwd(),
        redactor=ground.redactor,
        device_memory=device_memory,
        patience=patience,
        on_libraries=found,
    )
