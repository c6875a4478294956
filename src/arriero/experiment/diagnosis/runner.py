"""The runner of a diagnosis on this machine: the engine itself, on one bench."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from arriero.gguf import read_header, write_skeleton
from arriero.machine import device_memory, wait_for_memory
from arriero.process import Limit
from arriero.record import Trial
from arriero.trial import Bench, TrialSpec, run_trial

_SETTLE_S: Final = 30.0


@dataclass(frozen=True)
class EngineRunner:
    """Starts the engine on a bench.

    ``model`` is the file of which a copy without weights can be written; null if none can.
    """

    bench: Bench
    model: Path | None = None
    before: Mapping[str, int] = field(default_factory=lambda: dict(device_memory()))
    """Device memory in use before the first trial, in bytes."""

    @property
    def limit(self) -> Limit | None:
        return self.bench.limit

    @property
    def host_free(self) -> int | None:
        return self.bench.host_free

    def now(self) -> float:
        return time.monotonic()

    def run(self, spec: TrialSpec, seconds: float) -> Trial:
        """One trial, with no more patience than there is time."""
        patience = replace(self.bench.patience, whole_s=seconds)
        workload = replace(spec.workload, timeout_s=patience.request_s)
        bench = replace(self.bench, patience=patience)
        return run_trial(replace(spec, workload=workload), bench)

    def settle(self) -> str | None:
        """Wait until device memory is back where it was; say what is not.

        Host memory of an ended process is back at once; a driver can take seconds.
        """
        if not self.before:
            return None
        left = wait_for_memory(self.before, timeout=_SETTLE_S)
        return f"device memory held by others changed meanwhile: {left}" if left else None

    def weightless(self) -> Path | None:
        if self.model is None:
            return None
        directory = self.bench.scratch / "weightless"
        directory.mkdir()
        return write_skeleton(read_header(self.model), directory)
