"""Reproductions of gotchas: the run that must show it and the control that must not."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal

from arriero.base.errors import ArrieroError
from arriero.base.redact import Redactor
from arriero.base.words import Evidence, LimitKind
from arriero.command import builtin_flags, parse_command
from arriero.engine import Engine
from arriero.experiment.reproduction.judging import judge, matches
from arriero.experiment.reproduction.needs import machine, require
from arriero.experiment.reproduction.started import HIDDEN, CannotRunError, ready_peak, worker
from arriero.gguf import Shape, write_model
from arriero.gguf.projector import Projector, write_projector
from arriero.gotchas.model import EngineRun, Reproduction, Worker
from arriero.gotchas.verdicts import COULD_NOT_RUN
from arriero.process import Limit, Running, clean_environment
from arriero.record import GotchaVerdict, RunEvidence, Trial
from arriero.trial import Bench, Patience, TrialSpec, Workload, run_trial

ATTEMPTS: Final = 4
"""An engine that dies may take the line that says why along; then it is run again."""
_PATIENCE: Final = Patience(ready_s=180, stall_s=60, request_s=90)
_LOG_BYTES: Final = 1 << 24
_BRIEF: Final = Workload(prompts=2, long_prompt_s=0.3)


@dataclass
class Lab:
    """One engine, and a directory for the models and logs that reproductions make."""

    engine: Engine
    scratch: Path
    on_step: Callable[[str, str], None] = lambda title, why: None
    worker_engine: Engine | None = None
    """Another build, for workers that the engine is to refuse."""
    launches: int = 0
    models: dict[tuple[Shape, str], Path] = field(default_factory=dict)
    projectors: dict[Projector, Path] = field(default_factory=dict)
    worker_peaks: list[int | None] = field(default_factory=list)
    """Address space that each worker of the last run had taken at most."""
    free_peaks: dict[str, list[int | None]] = field(default_factory=dict)
    """The same of controls without limits, by the reproduction's name."""

    def reproduce(self, gotcha: str, reproduction: Reproduction) -> GotchaVerdict:
        """Run it and its control and say what they showed.

        Raises:
            KeyboardInterrupt: The user stopped it; every process has ended by then.
        """
        began = time.monotonic()
        self.free_peaks.clear()
        run = control = None
        verdict: Literal["reproduced", "not reproduced", "could not run"] = COULD_NOT_RUN
        try:
            require(reproduction, self.engine, self.worker_engine)
            self.on_step(f"{gotcha} ({reproduction.name})", "as it fails")
            run = self._shown(reproduction, reproduction.run)
            self.on_step(f"{gotcha} ({reproduction.name})", "with its workaround")
            control = self._evidence(reproduction, reproduction.control)
            verdict, reason = judge(reproduction, run, control)
        except CannotRunError as error:
            reason = str(error)
        except ArrieroError as error:
            reason = error.message
        return GotchaVerdict(
            gotcha=gotcha,
            reproduction=reproduction.name,
            build=self.engine.build,
            verdict=verdict,
            reason=reason,
            run=run,
            control=control,
            machine=machine(reproduction, self.engine, self.worker_engine),
            at=dt.datetime.now(dt.UTC).date().isoformat(),
            seconds=round(time.monotonic() - began, 1),
        )

    def _model(self, reproduction: Reproduction) -> Path:
        key = (reproduction.model, reproduction.weights)
        if key not in self.models:
            path = self.scratch / f"model-{len(self.models)}.gguf"
            self.models[key] = write_model(path, reproduction.model, weights=reproduction.weights)
        return self.models[key]

    def _files(self, reproduction: Reproduction) -> dict[str, str]:
        """What flags call ``{model}`` and ``{mmproj}``."""
        files = {"model": str(self._model(reproduction))}
        projector = reproduction.projector
        if projector is not None:
            if projector not in self.projectors:
                path = self.scratch / f"mmproj-{len(self.projectors)}.gguf"
                self.projectors[projector] = write_projector(path, projector)
            files["mmproj"] = str(self.projectors[projector])
        return files

    # runs

    def _shown(self, reproduction: Reproduction, run: EngineRun) -> RunEvidence:
        """The evidence of a run, of the first of some attempts that shows the signature."""
        for _ in range(ATTEMPTS):
            evidence, sure = self._try(reproduction, run)
            if evidence.shows or sure:
                break
        return evidence

    def _evidence(self, reproduction: Reproduction, run: EngineRun) -> RunEvidence:
        return self._try(reproduction, run)[0]

    def _try(self, reproduction: Reproduction, run: EngineRun) -> tuple[RunEvidence, bool]:
        """What one run showed, and whether its log is whole enough to say no."""
        files = self._files(reproduction)
        bounds = [self._worker_limit(reproduction, run, at) for at in range(len(run.workers))]
        with ExitStack() as stack:
            started = [
                stack.enter_context(self._worker(one, bound))
                for one, bound in zip(run.workers, bounds, strict=True)
            ]
            endpoints = [endpoint for endpoint, _ in started]
            given = files | {"workers": ",".join(endpoints)}
            flags = _words(run.flags, given)
            limit = self._limit(run, given)
            trial, log = self._trial(files["model"], flags, run, limit)
            self.worker_peaks = [process.memory().address_space_peak for _, process in started]
        shows, text = matches(reproduction.shows, trial, log)
        failure = trial.failure
        evidence = RunEvidence(
            flags=run.flags,
            env=dict(run.env),
            limit=limit,
            worker_limits=tuple(bounds),
            outcome=trial.outcome,
            exit_status=trial.exit_status,
            kind=failure.kind if failure else None,
            component=failure.component if failure else None,
            text=text or (failure.text if failure else ""),
            requests=trial.requests,
            shows=shows,
        )
        named = failure is None or failure.evidence is Evidence.NAMED
        return evidence, named and (trial.exit_status or 0) >= 0

    def _worker_limit(self, reproduction: Reproduction, run: EngineRun, at: int) -> int | None:
        """Address space of a worker, if it is to have little: the control without limits tells."""
        room, control = run.workers[at].room, reproduction.control
        if room is None:
            return None
        if reproduction.name not in self.free_peaks:
            free = replace(control, workers=tuple(replace(w, room=None) for w in control.workers))
            self._try(replace(reproduction, control=free), free)
            self.free_peaks[reproduction.name] = self.worker_peaks
        peak = self.free_peaks[reproduction.name][at]
        if peak is None:
            raise CannotRunError("the address space of a worker cannot be measured here")
        return peak + room

    def _worker(
        self, asked: Worker, limit: int | None
    ) -> AbstractContextManager[tuple[str, Running]]:
        engine = (self.worker_engine if asked.skewed else None) or self.engine
        return worker(engine, asked.env, limit)

    def _limit(self, run: EngineRun, given: Mapping[str, str]) -> int | None:
        if run.above is None:
            return run.limit
        flags = _words(run.above, given)
        return ready_peak(self.engine, given["model"], flags, run.env) + (run.limit or 0)

    def _trial(
        self, model: str, flags: list[str], run: EngineRun, limit: int | None
    ) -> tuple[Trial, str]:
        self.launches += 1
        scratch = self.scratch / f"run-{self.launches}"
        environ = {**clean_environment(), **HIDDEN, **run.env}
        engine = (self.worker_engine if run.other_engine else None) or self.engine
        words = [*run.behind.split(), "llama-server", "-m", model, *flags]
        command = parse_command(words, builtin_flags(), environ).with_flags(engine.flags)
        bench = Bench(
            engine=engine,
            limit=Limit(limit, LimitKind.ADDRESS_SPACE) if limit else None,
            scratch=scratch,
            cwd=self.scratch,
            redactor=Redactor(),
            patience=_PATIENCE,
        )
        workload = replace(_BRIEF, min_requests=run.requests, shared=run.shared, image=run.image)
        spec = TrialSpec(n=1, purpose="reproduction", command=command, change={}, workload=workload)
        trial = run_trial(spec, bench)
        with (scratch / "trial-1" / "engine.log").open("rb") as file:
            return trial, file.read(_LOG_BYTES).decode("utf-8", "replace")


def _words(flags: str, given: Mapping[str, str]) -> list[str]:
    """Flags as words. A placeholder is filled in after they are parted: paths may have spaces."""
    return [word.format(**given) for word in flags.split()]
