"""Sizes asked of the engine itself by dry runs: exact, and no launch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, cast

from arriero.command import Command
from arriero.engine import Engine
from arriero.engine.oracle import DryRun, DryRunRequest, dry_run
from arriero.experiment.case import Point


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
        command = self._command

        def number(flag: str, default: int) -> int:
            try:
                return int(command.value(flag) or default)
            except ValueError:
                return default

        n_ubatch = point.n_ubatch or number("-ub", 512)
        embedding = command.switch("--embedding") is True
        # An embedding server reads a prompt in one piece: its batch is its micro-batch.
        n_batch = n_ubatch if embedding else number("-b", 2048)
        flash = {"1": "on", "0": "off"}.get(command.value("-fa") or "", command.value("-fa"))
        return DryRunRequest(
            model=self._model,
            n_ctx=point.tokens,
            n_batch=n_batch,
            n_ubatch=n_ubatch,
            n_seq_max=point.slots,
            kv_unified=point.unified,
            type_k=command.value("-ctk") or "f16",
            type_v=command.value("-ctv") or "f16",
            flash_attn=cast(
                Literal["auto", "on", "off"], flash if flash in {"on", "off"} else "auto"
            ),
            swa_full=command.switch("--swa-full") is True,
            offload_kqv=command.switch("--kv-offload") is not False,
            embeddings=embedding,
            n_gpu_layers=number("-ngl", -1),
            use_extra_bufts=command.switch("--repack") is not False,
        )


def _bytes(run: DryRun | None, device: str | None) -> int | None:
    """On a device its buffers; in all also the host memory that no size line shows."""
    if run is None:
        return None
    buffers = [b for b in run.buffers if device is None or b.device == device]
    hidden = run.address_space_delta if device is None else 0
    return hidden + sum(b.context + b.compute + b.output for b in buffers)
