"""What every real run took: kept for later plans, and given to them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from arriero.base import limits
from arriero.base.buffers import is_on_host
from arriero.base.errors import ArrieroError, RecordError
from arriero.base.words import Component
from arriero.command import Command
from arriero.engine import Engine, ListedDevice
from arriero.gguf import Header, describe, read_header
from arriero.jobs._baseline import Ground
from arriero.launch.drafting import draft_model
from arriero.launch.edits import with_settings
from arriero.launch.launch import launch_of
from arriero.launch.placement import workers
from arriero.memory import Calibration, DryRuns, Planner
from arriero.memory.calibration import calibrations_of
from arriero.memory.taken import fingerprint, run_buffers, run_settings
from arriero.record import DeviceRecord, Plan, Run, RunBuffer, RunSettings, Trial
from arriero.store import Store, new_id


def calibrations(
    store: Store,
    header: Header,
    *,
    engine: Engine | None,
    build: int | None = None,
    devices: Iterable[ListedDevice | DeviceRecord] = (),
) -> tuple[Calibration, ...]:
    """What earlier runs have to say about plans of a model: for ``Planner(calibrations=…)``.

    It is the same for every command of this model: which runs count for which settings is decided
    there, where lines are corrected and notes (``drift``, ``calibration``) are made. A few
    milliseconds; a history that is missing or cannot be read gives none.

    Args:
        engine: The installation that is planned for; without one, runs of ``build`` count.
        devices: As the engine lists them; empty for hardware one does not have.
    """
    arch = header.metadata.get("general.architecture")
    try:
        runs = store.runs(arch) if isinstance(arch, str) else ()
    except RecordError:
        return ()
    named = {device.name: device.description for device in devices}
    return calibrations_of(runs, header, engine=engine, build=build, devices=named)


class Recorder:
    """Keeps what the trials of one experiment took.

    Nothing here costs an experiment its answer: what cannot be planned or written is left out.
    ``planner`` is what plans them; null without a header that can be read.
    """

    def __init__(self, store: Store, ground: Ground) -> None:
        self.planner, self._dry_runs = _planner(ground)
        self._store, self._baseline, self._redactor = store, ground.baseline, ground.redactor
        self._kept: list[_Kept] = []
        self._refused = False
        """The store could not be written once; it is not tried again."""

    def found(self, libraries: Path) -> None:
        """Told where a trial's engine has its libraries, also behind a wrapper."""
        if self._dry_runs is not None:
            self._dry_runs.library_dir = libraries

    def ran(self, command: Command, trial: Trial) -> None:
        """Keep a trial beside what was planned for it. Starts nothing."""
        if self.planner is None or self._refused:
            return
        with suppress(ArrieroError):
            kept = self._of(self.planner, _as_it_ran(command, trial, self.planner.header), trial)
            if kept.run.buffers:
                self._kept.append(kept)
                self._save([kept.run])

    def close(self) -> None:
        """Add what the engine's dry run says of each trial: all in one question, after the last."""
        kept, self._kept = self._kept, []
        if self.planner is None or self._refused or not kept:
            return
        with suppress(KeyboardInterrupt):  # the answer is there, it only has to be told
            plans = self.planner.plans([one.command for one in kept])
            self._save(
                [
                    msgspec.structs.replace(
                        one.run, buffers=run_buffers(one.trial, one.planned, asked)
                    )
                    for one, asked in zip(kept, plans, strict=True)
                    if asked is not None and self.planner.answers is not None
                ]
            )

    def _save(self, runs: Sequence[Run]) -> None:
        try:
            self._store.save_runs(runs, self._redactor)
        except RecordError:
            self._refused = True

    def _of(self, planner: Planner, command: Command, trial: Trial) -> _Kept:
        engine = self._baseline.engine
        planned = planner.quick(command)
        about, seen = describe(planner.header), trial.effective
        settings = launch_of(
            command, planner.model, n_ctx_train=about.n_ctx_train or 0, build=engine.build
        )
        ran = run_settings(about, settings, planner.pools)
        buffers = run_buffers(trial, planned)
        run = Run(
            id=new_id("run"),
            taken_at=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
            model=fingerprint(planner.header),
            arch=about.arch,
            engine=engine,
            devices=self._baseline.devices,
            settings=_as_placed(
                msgspec.structs.replace(
                    ran,
                    n_ctx=seen.n_ctx or ran.n_ctx,
                    n_ctx_seq=seen.n_ctx_seq or ran.n_ctx_seq,
                    n_seq_max=seen.n_seq_max or ran.n_seq_max,
                ),
                buffers,
            ),
            outcome=trial.outcome,
            buffers=buffers,
            peak=trial.peak,
        )
        return _Kept(command, trial, planned, run)


@dataclass(frozen=True)
class _Kept:
    command: Command
    trial: Trial
    planned: Plan
    run: Run


def _as_it_ran(command: Command, trial: Trial, header: Header) -> Command:
    """The command with what it left to the engine as the engine then chose it."""
    seen, n_layer = trial.effective, describe(header).n_layer
    launch, settings = launch_of(command), dict[str, str | None]()
    if seen.n_ctx is not None and launch.context_asked is None:
        settings["-c"] = str(seen.n_ctx)
    # all layers are one more than there are: the output layer
    some = seen.n_gpu_layers is not None and n_layer is not None and seen.n_gpu_layers <= n_layer
    if some and launch.layers_given is None:
        settings["-ngl"] = str(seen.n_gpu_layers)
    if command.flags.knows("--fit"):
        settings["--fit"] = "off"
    return with_settings(command, settings)


def _as_placed(settings: RunSettings, buffers: Iterable[RunBuffer]) -> RunSettings:
    """The settings, marked where weights are not where these would put them.

    That is so where the engine's fit moved tensors, or free memory decided and was another when it
    started: no later plan can mean the same.
    """
    for buffer in buffers:
        if buffer.component is Component.WEIGHTS and not is_on_host(buffer.device):
            off = abs((buffer.taken or 0) - (buffer.planned or 0))
            if off > buffer.rounding:
                flags = (*settings.flags, f"placed otherwise on {buffer.device}: {buffer.taken}")
                return msgspec.structs.replace(settings, flags=flags)
    return settings


def _planner(ground: Ground) -> tuple[Planner | None, DryRuns | None]:
    model, command = ground.model_path, ground.command
    if model is None or ground.baseline.model is None or ground.baseline.model.problem:
        return None, None
    draft, typed = None, draft_model(command)
    if typed is not None:
        with suppress(ArrieroError):  # the trial will show what the engine says of it
            draft = read_header(Path.cwd() / limits.expanded(typed))
    # a dry run reaches no worker
    asked = None if workers(command) else DryRuns.of(ground.engine, command.environ)
    planner = Planner(
        read_header(model),
        ground.pools,
        model=model,
        answers=asked,
        build=ground.engine.build,
        draft=draft,
    )
    return planner, asked
