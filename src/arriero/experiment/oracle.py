"""Sizes asked of the engine itself by dry runs: exact, and no launch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from arriero.command import Command
from arriero.engine import Engine
from arriero.engine.oracle import DryRun, DryRunRequest, dry_run
from arriero.experiment.case import Point
from arriero.memory import request_of


class OracleSizes:
    """KV, RS, compute and output of a command at any point, by the engine's own account.

    One answer is kept per point. Where the engine does not answer, every size is null and
    ``reason`` says why; the caller then goes by what the trials printed.
    """

    def __init__(
        self, engine: Engine, command: Command, model: Path, environ: Mapping[str, str]
    ) -> None:
        self._command, self._model, self._environ = command, model, environ
        self.library_dir = engine.path.resolve().parent
        """Corrected by the first trial, where the engine stands behind a wrapper."""
        self._known: dict[Point, DryRun | None] = {}
        self.reason = ""

    def total(self, points: Sequence[Point], device: str | None = None) -> list[int | None]:
        missing = [point for point in dict.fromkeys(points) if point not in self._known]
        if missing and not self.reason:
            answers = dry_run(
                self.library_dir,
                [self._request(point) for point in missing],
                environ=self._environ,
                timeout=60.0,
            )
            for point, answer in zip(missing, answers, strict=True):
                self._known[point] = answer if isinstance(answer, DryRun) else None
                if not isinstance(answer, DryRun):
                    self.reason = answer.reason
        return [_bytes(self._known.get(point), device) for point in points]

    def _request(self, point: Point) -> DryRunRequest:
        return request_of(
            self._command,
            self._model,
            n_ctx=point.tokens,
            n_seq_max=point.slots,
            kv_unified=point.unified,
            n_ubatch=point.n_ubatch,
        )


def _bytes(run: DryRun | None, device: str | None) -> int | None:
    """On a device its buffers; in all also the host memory that no size line shows."""
    if run is None:
        return None
    buffers = [b for b in run.buffers if device is None or b.device == device]
    hidden = run.address_space_delta if device is None else 0
    return hidden + sum(b.context + b.compute + b.output for b in buffers)
