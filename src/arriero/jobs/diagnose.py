"""``arriero diagnose``: why a command does not run, and the smallest change that makes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from arriero.base.errors import NotFoundError, RecordError
from arriero.base.paths import StrPath, texts
from arriero.base.redact import Redactor
from arriero.command import Command
from arriero.experiment.diagnosis import (
    TYPICAL_LAUNCHES,
    EngineRunner,
    PlannedForecast,
    Problem,
    Reporter,
    run_diagnosis,
)
from arriero.jobs._baseline import Ground, survey
from arriero.jobs._bench import bench_of
from arriero.jobs._runs import Recorder
from arriero.jobs.explain import explain
from arriero.logs.model import Failure
from arriero.process import Limit, scratch_directory, sweep, temporary_directory
from arriero.record import NOT_KEPT, Diagnosis, Trial
from arriero.report.progress import Progress, Silent
from arriero.store import Store, new_id
from arriero.trial import Patience


@dataclass(frozen=True)
class DiagnoseOptions:
    """What ``arriero diagnose`` can be told.

    ``max_time`` bounds the whole in seconds; ``requests`` is how many the recommendation must
    serve.
    """

    engine: StrPath | None = None
    limit: Limit | None = None
    from_log: StrPath | None = None
    max_time: float | None = None
    max_launches: int = 24
    as_given: bool = False
    requests: int = 64
    patience: Patience = field(default_factory=Patience)


def diagnose(
    words: Sequence[StrPath],
    options: DiagnoseOptions | None = None,
    *,
    store: Store | None = None,
    progress: Progress | None = None,
    environ: Mapping[str, str] | None = None,
) -> Diagnosis:
    """Diagnose one command and keep the record.

    The record in the store is valid from the first trial on: an interruption leaves a partial one
    with ``complete: false``.

    Raises:
        ArrieroError: The command, the engine or the model cannot be used; the message says how.
        KeyboardInterrupt: Before the first trial began; later ones end in a partial record.
    """
    options, store = options or DiagnoseOptions(), store or Store()
    watch = progress or Silent()
    sweep(temporary_directory())
    ground = survey(texts(words), engine=options.engine, limit=options.limit, environ=environ)
    problem = _problem(ground, options)
    recorder = Recorder(store, ground)
    reporter = _Keeping(watch, recorder, store, ground.redactor)
    watch.begin(TYPICAL_LAUNCHES)
    try:
        found = _search(problem, ground, options, recorder, reporter)
    finally:
        watch.end()
    if not found.interrupted:
        recorder.close()
    return found


def _search(
    problem: Problem,
    ground: Ground,
    options: DiagnoseOptions,
    recorder: Recorder,
    reporter: Reporter,
) -> Diagnosis:
    """The trials themselves, in a directory of their own."""
    planner = recorder.planner
    forecast = PlannedForecast(planner, ground.command) if planner else None
    with scratch_directory(temporary_directory()) as scratch:
        bench = bench_of(
            ground,
            scratch,
            limit=options.limit,
            patience=options.patience,
            found=recorder.found,
        )
        # a header that can be planned with is one that can be written again
        runner = EngineRunner(bench, model=ground.model_path if planner else None)
        return run_diagnosis(problem, runner, forecast, reporter)


def _problem(ground: Ground, options: DiagnoseOptions) -> Problem:
    return Problem(
        id=new_id("diag"),
        command=ground.command,
        baseline=ground.baseline,
        as_given=options.as_given,
        from_log=_failure_in(Path(options.from_log)) if options.from_log else None,
        max_time=options.max_time,
        max_launches=options.max_launches,
        verify_requests=options.requests,
    )


class _Keeping(Reporter):
    """Shows the steps, keeps what each trial took, saves the record."""

    def __init__(
        self, watch: Progress, recorder: Recorder, store: Store, redactor: Redactor
    ) -> None:
        self._watch, self._recorder = watch, recorder
        self._store, self._redactor = store, redactor

    def starting(self, step: str, why: str) -> None:
        self._watch.step(step, why)

    def tried(self, command: Command, trial: Trial) -> None:
        self._recorder.ran(command, trial)

    def save(self, record: Diagnosis) -> str | None:
        try:
            self._store.save(record, self._redactor)
        except RecordError as error:
            # A full disk must not cost the user the answer.
            return f"{NOT_KEPT}: {error.message}"
        return None


def _failure_in(path: Path) -> Failure:
    """The failure that a log tells of: without one, the command would be started after all.

    Raises:
        NotFoundError: There is no such log, or no failure in it.
    """
    log = explain(path)
    if log.failure is not None:
        return log.failure
    several = "the logs of several servers" if log.children else "no failure"
    raise NotFoundError(
        f"{path} holds {several}: there is nothing to start from",
        hint=f"arriero explain {path} shows what it says",
        id="no-failure-in-log",
    )
