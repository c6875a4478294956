"""Reproductions of gotchas: the run that must show it and the control that must not."""

from __future__ import annotations

import datetime as dt
import platform
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal

from arriero.base.errors import ArrieroError, EngineError
from arriero.base.redact import Redactor
from arriero.base.words import Evidence, LimitKind, TrialOutcome
from arriero.command import builtin_flags, parse_command
from arriero.engine import Engine, compiled_for, list_devices
from arriero.engine.devices import ask_workers
from arriero.gguf import Shape, write_model
from arriero.gguf.projector import Projector, write_projector
from arriero.gotchas.model import EngineRun, Needs, Reproduction, Signature, Worker
from arriero.gotchas.verdicts import COULD_NOT_RUN, NOT_REPRODUCED, REPRODUCED
from arriero.machine import cpu_behind, misfit
from arriero.process import Limit, Running, clean_environment, free_port, start
from arriero.record import GotchaVerdict, RunEvidence, Trial
from arriero.trial import Bench, Patience, TrialSpec, Workload, describe_status, run_trial

HIDDEN: Final = {
    "GGML_VK_VISIBLE_DEVICES": "99",
    "CUDA_VISIBLE_DEVICES": "-1",
    "HIP_VISIBLE_DEVICES": "-1",
}
"""No device of that number: everything is on the CPU unless a run shows one."""
FIRST_VULKAN: Final = {"GGML_VK_VISIBLE_DEVICES": "0"}
ATTEMPTS: Final = 4
"""An engine that dies may take the line that says why along; then it is run again."""
_PATIENCE: Final = Patience(ready_s=180, stall_s=60, request_s=90)
_GIVE_UP: Final = 60.0
_LOG_BYTES: Final = 1 << 24
_BRIEF: Final = Workload(prompts=2, long_prompt_s=0.3)


class _CannotRunError(Exception):
    """This machine or engine lacks what a reproduction needs."""


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
            self._require(reproduction)
            self.on_step(f"{gotcha} ({reproduction.name})", "as it fails")
            run = self._shown(reproduction, reproduction.run)
            self.on_step(f"{gotcha} ({reproduction.name})", "with its workaround")
            control = self._evidence(reproduction, reproduction.control)
            verdict, reason = _judge(reproduction, run, control)
        except _CannotRunError as error:
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
            machine=self._machine(reproduction),
            at=dt.datetime.now(dt.UTC).date().isoformat(),
            seconds=round(time.monotonic() - began, 1),
        )

    # what it takes

    def _require(self, reproduction: Reproduction) -> None:
        for need in reproduction.needs:
            match need:
                case Needs.VULKAN:
                    if not self._vulkan():
                        raise _CannotRunError("there is no Vulkan device")
                case Needs.RPC_SERVER:
                    if self.engine.rpc_server is None:
                        raise _CannotRunError("there is no ggml-rpc-server beside the engine")
                case Needs.OTHER_BUILD:
                    self._require_skew()
                case Needs.OTHER_CPU:
                    self._require_other_cpu(reproduction.run)
                case Needs.ADDRESS_SPACE:
                    if sys.platform != "linux":
                        raise _CannotRunError("address space cannot be limited here")
        known = self.engine.flags
        for run in (reproduction.run, reproduction.control):
            for word in run.flags.split():
                missing = word.startswith("-") and not word[1:2].isdigit()
                if missing and not known.knows(word) and word not in reproduction.unknown:
                    raise _CannotRunError(f"this engine has no {word}")

    def _require_skew(self) -> None:
        if self.worker_engine is None or self.worker_engine.build == self.engine.build:
            raise _CannotRunError("needs --worker-engine of another build")
        with self._worker(Worker(skewed=True), None) as (endpoint, _):
            _, refused = ask_workers(self.engine, {**clean_environment(), **HIDDEN}, [endpoint])
        if endpoint not in refused:
            raise _CannotRunError(
                f"build {self.engine.build} takes workers of build {self.worker_engine.build}:"
                " needs --worker-engine of another protocol"
            )

    def _require_other_cpu(self, run: EngineRun) -> None:
        """That the CPU behind the run's words is none for this engine, and one for the other."""
        environ, words = clean_environment(), run.behind.split()
        cpu = cpu_behind(words, environ)
        if cpu is None:
            raise _CannotRunError(f"there is no {words[0]} here, or it does not say what it can do")
        if misfit(compiled_for(self.engine, environ), cpu) is None:
            raise _CannotRunError("this engine was compiled for nothing that such a CPU lacks")
        other = self.worker_engine
        if other is None or misfit(compiled_for(other, environ), cpu) is not None:
            raise _CannotRunError("needs --worker-engine of a build for such a CPU")

    def _vulkan(self) -> str:
        """The first Vulkan device; empty without one."""
        environ = {**clean_environment(), **HIDDEN, **FIRST_VULKAN}
        try:
            found = list_devices(self.engine, environ) or ()
        except EngineError:
            return ""
        return next((d.description for d in found if d.name.startswith("Vulkan")), "")

    def _machine(self, reproduction: Reproduction) -> str:
        parts = [f"{platform.system()} {platform.machine()}", reproduction.run.behind or "CPU"]
        if Needs.VULKAN in reproduction.needs:
            parts[1] = f"Vulkan: {self._vulkan() or 'none'}"
        if Needs.RPC_SERVER in reproduction.needs:
            of = ""
            if Needs.OTHER_BUILD in reproduction.needs and self.worker_engine is not None:
                of = f" of build {self.worker_engine.build}"
            parts.append(f"workers{of} on this machine")
        return ", ".join(parts)

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
                stack.enter_context(self._worker(worker, bound))
                for worker, bound in zip(run.workers, bounds, strict=True)
            ]
            endpoints = [endpoint for endpoint, _ in started]
            given = files | {"workers": ",".join(endpoints)}
            flags = _words(run.flags, given)
            limit = self._limit(run, given)
            trial, log = self._trial(files["model"], flags, run, limit)
            self.worker_peaks = [worker.memory().address_space_peak for _, worker in started]
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
            raise _CannotRunError("the address space of a worker cannot be measured here")
        return peak + room

    def _limit(self, run: EngineRun, given: Mapping[str, str]) -> int | None:
        if run.above is None:
            return run.limit
        flags = _words(run.above, given)
        return self._ready_peak(given["model"], flags, run.env) + (run.limit or 0)

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

    def _ready_peak(self, model: str, flags: list[str], env: Mapping[str, str]) -> int:
        """The most address space that it has taken when it is ready, in bytes."""
        told = threading.Event()

        def on_line(line: str) -> None:
            if "model loaded" in line:
                told.set()

        words = [str(self.engine.path), "-m", model, "--port", str(free_port()), *flags]
        environ = self.engine.environment({**clean_environment(), **HIDDEN, **env})
        with start(words, env=environ, on_line=on_line) as running:
            deadline = time.monotonic() + _GIVE_UP
            while not told.wait(0.05):
                if running.poll() is not None or time.monotonic() > deadline:
                    raise _CannotRunError("what its limit is measured by does not start")
            peak = running.memory().address_space_peak
        if peak is None:
            raise _CannotRunError("address space cannot be measured here")
        return peak

    @contextmanager
    def _worker(self, worker: Worker, limit: int | None) -> Iterator[tuple[str, Running]]:
        """A worker on the loopback. Its banner is buffered: that it listens, connecting shows."""
        engine = (self.worker_engine if worker.skewed else None) or self.engine
        if engine.rpc_server is None:
            raise _CannotRunError("there is no ggml-rpc-server beside the engine")
        port = free_port()
        words = [str(engine.rpc_server), "-H", "127.0.0.1", "-p", str(port)]
        environ = engine.environment({**clean_environment(), **HIDDEN, **worker.env})
        bound = Limit(limit, LimitKind.ADDRESS_SPACE) if limit else None
        with start(words, env=environ, on_line=lambda _: None, limit=bound) as running:
            deadline = time.monotonic() + _GIVE_UP
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    if running.poll() is not None or time.monotonic() > deadline:
                        raise _CannotRunError("the worker does not start") from None
                    time.sleep(0.05)
            yield f"127.0.0.1:{port}", running


def _words(flags: str, given: Mapping[str, str]) -> list[str]:
    """Flags as words. A placeholder is filled in after they are parted: paths may have spaces."""
    return [word.format(**given) for word in flags.split()]


def matches(shows: Signature, trial: Trial, log: str) -> tuple[bool, str]:
    """Whether a trial shows a signature, and the line or the value that does."""
    failure = trial.failure
    text = failure.text if failure else ""
    if shows.log is not None:
        lines = log.splitlines()
        if trial.exit_status is not None:
            lines.append(f"ended with {describe_status(trial.exit_status)}")
        found = next((line for line in lines if re.search(shows.log, line)), None)
        if found is None:
            return False, ""
        text = found.strip()
    wanted = (
        (shows.outcome, trial.outcome),
        (shows.kind, failure.kind if failure else None),
        (shows.component, failure.component if failure else None),
        (shows.exit_status, trial.exit_status),
    )
    if any(want is not None and want != have for want, have in wanted):
        return False, ""
    for name, want in shows.effective.items():
        if getattr(trial.effective, name) != want:
            return False, ""
        text = text or f"{name} = {want}"
    return True, text


def _judge(
    reproduction: Reproduction, run: RunEvidence, control: RunEvidence
) -> tuple[Literal["reproduced", "not reproduced", "could not run"], str]:
    if not run.shows:
        return NOT_REPRODUCED, f"the run {_outcome(run)}"
    if control.shows:
        return NOT_REPRODUCED, "the workaround does not change the outcome"
    if reproduction.control_serves and control.outcome is not TrialOutcome.SERVED:
        return COULD_NOT_RUN, f"the control {_outcome(control)}"
    return REPRODUCED, ""


def _outcome(run: RunEvidence) -> str:
    match run.outcome:
        case TrialOutcome.SERVED:
            return "served every request"
        case TrialOutcome.READY:
            how = "failed a request"
        case TrialOutcome.FAILED:
            how = "did not start"
    end = f" ({describe_status(run.exit_status)})" if run.exit_status is not None else ""
    return f"{how}{end}: {run.text[:200]}"
