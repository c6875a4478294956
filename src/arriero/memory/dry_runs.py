"""What one engine says of sizes by dry runs: each question is asked once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from arriero.engine import Engine
from arriero.engine.oracle import (
    DryRun,
    ProjectorRun,
    Unanswered,
    dry_run,
    projector_run,
)
from arriero.launch.params import EngineParams, ProjectorParams

_SECONDS: Final = 60.0


class Answers(Protocol):
    """Who tells sizes: an engine, or answers that are there already."""

    def sizes(self, request: EngineParams) -> DryRun | Unanswered:
        """Of a model with its settings."""

    def projector(self, request: ProjectorParams) -> ProjectorRun | Unanswered:
        """Of a multimodal projector."""

    def prepare(self, requests: Sequence[EngineParams]) -> bool:
        """Ask for many at once, nearly as fast as for one; whether each has its sizes."""


class DryRuns:
    """The engine in one directory, asked in child processes (:mod:`arriero.engine.oracle`).

    Args:
        library_dir: Where its program is. Who learns of another directory, since the engine stands
            behind a wrapper, sets ``library_dir``.
        environ: The engine's environment.
    """

    def __init__(self, library_dir: Path, environ: Mapping[str, str]) -> None:
        self.library_dir, self._environ = library_dir, environ
        self._sizes: dict[EngineParams, DryRun | Unanswered] = {}
        self._projectors: dict[ProjectorParams, ProjectorRun | Unanswered] = {}

    @classmethod
    def of(cls, engine: Engine, environ: Mapping[str, str]) -> DryRuns:
        """Those of an installed engine."""
        return cls(engine.path.resolve().parent, environ)

    def sizes(self, request: EngineParams) -> DryRun | Unanswered:
        self.prepare([request])
        return self._sizes[request]

    def prepare(self, requests: Sequence[EngineParams]) -> bool:
        asked = list(dict.fromkeys(requests))
        missing = [request for request in asked if request not in self._sizes]
        if missing:
            found = dry_run(self.library_dir, missing, environ=self._environ, timeout=_SECONDS)
            self._sizes.update(zip(missing, found, strict=True))
        return all(isinstance(self._sizes[request], DryRun) for request in asked)

    def projector(self, request: ProjectorParams) -> ProjectorRun | Unanswered:
        if request not in self._projectors:
            self._projectors[request] = projector_run(
                self.library_dir, request, environ=self._environ, timeout=_SECONDS
            )
        return self._projectors[request]
