"""``arriero diagnose``: why a command does not run, and the smallest change that makes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from arriero.base.errors import NotFoundError, RecordError
from arriero.experiment import TYPICAL_LAUNCHES, Case, Diagnoser, PlannedSizes, plan_of
from arriero.gguf import read_header, write_skeleton
from arriero.jobs._baseline import Ground, survey
from arriero.jobs._runs import Recorder
from arriero.jobs.explain import explain_file
from arriero.machine import device_memory, free_host_memory, wait_for_memory
from arriero.process import Limit, scratch_directory, sweep, temporary_directory
from arriero.record import NOT_KEPT, Diagnosis, Explanation
from arriero.report.progress import Progress, Silent
from arriero.store import Store, new_id
from arriero.trial import Bench, Patience


@dataclass(frozen=True)
class Options:
    """What ``arriero diagnose`` can be told.

    ``max_time`` bounds the whole in seconds; ``requests`` is how many the recommendation must
    serve.
    """

    engine: str | None = None
    limit: Limit | None = None
    from_log: Path | None = None
    max_time: float | None = None
    max_launches: int = 24
    as_given: bool = False
    requests: int = 64
    patience: Patience = field(default_factory=Patience)


def diagnose(
    words: Sequence[str],
    options: Options,
    *,
    store: Store,
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
    watch = progress or Silent()
    sweep(temporary_directory())
    ground = survey(words, engine=options.engine, limit=options.limit, environ=environ)
    log = _failed_log(options.from_log) if options.from_log else None
    recorder = Recorder(store, ground)
    planner = recorder.planner
    with scratch_directory(temporary_directory()) as scratch:
        bench = Bench(
            engine=ground.engine,
            limit=options.limit,
            host_free=free_host_memory(ground.pools),
            scratch=scratch,
            cwd=Path.cwd(),
            redactor=ground.redactor,
            device_memory=device_memory,
            patience=options.patience,
            on_libraries=recorder.found,
        )

        unsaved: list[str] = []

        def save(diagnosis: Diagnosis) -> None:
            try:
                store.save(diagnosis, ground.redactor)
            except RecordError as error:
                # A full disk must not cost the user the answer.
                if not unsaved:
                    diagnoser.notes.append(f"{NOT_KEPT}: {error.message}")
                unsaved.append(error.message)

        case = Case(
            id=new_id("diag"),
            command=ground.command,
            bench=bench,
            baseline=ground.baseline,
            planned=PlannedSizes(planner, ground.command) if planner else None,
            plan=partial(plan_of, planner) if planner else lambda command, asked: None,
            host_free=free_host_memory(ground.pools),
            as_given=options.as_given,
            from_log=log,
            max_time=options.max_time,
            max_launches=options.max_launches,
            verify_requests=options.requests,
            save=save,
            settle=settle(),
            weightless=_weightless(ground, scratch),
            on_step=watch.step,
            ran=recorder.ran,
        )
        diagnoser = Diagnoser(case)
        watch.begin(TYPICAL_LAUNCHES)
        try:
            found = diagnoser.run()
        finally:
            watch.end()
        if not found.interrupted:
            recorder.close()
        return found


def _failed_log(path: Path) -> Explanation:
    """What a log says of a failure: without one, the command as given would be started after all.

    Raises:
        NotFoundError: There is no such log, or no failure in it.
    """
    log = explain_file(path)
    if log.failure is not None:
        return log
    several = "the logs of several servers" if log.children else "no failure"
    raise NotFoundError(
        f"{path} holds {several}: there is nothing to start from",
        hint=f"arriero explain {path} shows what it says",
        id="no-failure-in-log",
    )


def _weightless(ground: Ground, scratch: Path) -> Callable[[], Path] | None:
    """Writes the model without its weights into the scratch directory; null without a header."""
    model = ground.model_path
    if model is None or ground.baseline.model is None or ground.baseline.model.problem:
        return None

    def write() -> Path:
        directory = scratch / "weightless"
        directory.mkdir()
        return write_skeleton(read_header(model), directory)

    return write


def settle(timeout: float = 30.0) -> Callable[[], str | None]:
    """Waits, between trials, until device memory is back where it was; says what is not.

    Host memory of an ended process is back at once; a driver can take seconds.
    """
    before = dict(device_memory())

    def wait() -> str | None:
        if not before:
            return None
        left = wait_for_memory(before, timeout=timeout)
        return None if not left else f"device memory held by others changed meanwhile: {left}"

    return wait
