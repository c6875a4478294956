"""``arriero plan``: what a command will take and whether it fits, before anything is loaded."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from arriero.advice import advise
from arriero.base import limits
from arriero.base.errors import ArrieroError, EngineError, NotFoundError, RecordError, UsageError
from arriero.base.paths import StrPath, texts
from arriero.base.redact import Redactor
from arriero.command import (
    Command,
    ModelSource,
    builtin_flags,
    parse_command,
)
from arriero.engine import Engine, ListedDevice, find_engine, list_devices
from arriero.gguf import Header, open_model, read_source, skeleton
from arriero.jobs._baseline import refuse_other_uses
from arriero.jobs._engine import engine_record, failure_of, misfit_of
from arriero.jobs._misuse import refuse_misuse
from arriero.jobs._models import is_remote, spec_of, with_model
from arriero.jobs._runs import calibrations
from arriero.launch import launch_of, serving_of
from arriero.launch.placement import workers
from arriero.machine import Misfit, Pool, pools
from arriero.machine.cpu import INSTEAD
from arriero.memory import Calibration, DryRuns, Planner
from arriero.memory.frontier import WhatIf, frontier
from arriero.memory.placement import chosen_devices
from arriero.process import scratch_directory, sweep, temporary_directory
from arriero.record import NOT_KEPT, FrontierPoint, HeaderReads, Plan, PlanNote
from arriero.report.progress import Progress, Silent
from arriero.store import Store, new_id

_SERVER: Final = "llama-server"
_HOW: Final = "arriero plan model.gguf -c 8192   or   arriero plan -- llama-server -m …"
_USUAL_NAMES: Final = (_SERVER, "llama-server-vulkan")


@dataclass(frozen=True)
class PlanOptions:
    """What ``arriero plan`` can be told.

    ``budget`` is in place of this machine's memory. ``assume_build`` takes the rules of a build and
    asks no engine. ``bare``: the words are options of llama-server with a model somewhere among
    them, and no program before them.
    """

    engine: StrPath | None = None
    budget: tuple[Pool, ...] | None = None
    frontier: bool = False
    assume_build: int | None = None
    bare: bool = False


def plan(
    words: Sequence[StrPath],
    options: PlanOptions | None = None,
    *,
    store: Store | None = None,
    progress: Progress | None = None,
    environ: Mapping[str, str] | None = None,
    cwd: StrPath | None = None,
) -> Plan:
    """Plan a command and keep the plan. Nothing is loaded; the engine is asked for sizes only.

    An interruption after the plan itself leaves out what was still to come, with ``complete``
    false.

    Args:
        store: Where the plan is kept, this user's history by default.
        environ: In place of this process's environment; for relative paths, ``cwd`` is likewise.

    Raises:
        UsageError: No command or model, or options that the engine would refuse.
        NotFoundError: A model or an engine that was named is not there.
        ModelError: The header is damaged, or one that llama.cpp would refuse.
        EngineError: An engine that was named cannot be used.
    """
    environ = dict(os.environ if environ is None else environ)
    options, store, cwd = options or PlanOptions(), store or Store(), Path(cwd or Path.cwd())
    watch = progress or Silent()
    sweep(temporary_directory())
    if not words and not options.bare:
        raise UsageError("no command given", hint=_HOW)
    typed = [_SERVER, *texts(words)] if options.bare else texts(words)
    command = parse_command(typed, builtin_flags(), environ)
    engine, notes = _engine(command, options, environ, cwd)
    command = command.with_flags(engine.flags if engine else builtin_flags())
    if options.bare:
        command = with_model(command)
    refuse_misuse(command, engine.flags if engine else command.flags)
    if options.bare and command.model_source()[0] is ModelSource.ROUTER:
        raise UsageError("no model given", hint=_HOW, id="no-model-given")
    refuse_other_uses(command)
    try:
        with scratch_directory(temporary_directory()) as scratch:
            job = Planning(command, options, engine, scratch, cwd, watch)
            found = job.run(store, notes)
    finally:
        watch.end()
    redactor = Redactor.for_this_machine(
        secrets={*command.secrets(), *serving_of(command, cwd).api_keys}
    )
    return _kept(found, store, redactor)


def _kept(found: Plan, store: Store, redactor: Redactor) -> Plan:
    """The plan without secrets, saved if that can be done: a full disk must not cost the answer."""
    found = redactor.scrub(found)
    try:
        store.save(found, redactor)
    except RecordError as error:
        note = PlanNote(id="record", text=f"{NOT_KEPT}: {error.message}")
        return msgspec.structs.replace(found, notes=(*found.notes, note))
    return found


# --- the command --------------------------------------------------------------------------------


def _engine(
    command: Command, options: PlanOptions, environ: Mapping[str, str], cwd: Path
) -> tuple[Engine | None, list[PlanNote]]:
    """The engine to ask, if there is one. One that was named must be there and work."""
    if options.assume_build is not None:
        rules = f"Sizes follow the rules of build {options.assume_build}."
        text = f"{rules} Compute is a bound: no engine is asked."
        return None, [PlanNote(id="engine", text=text)]
    named = options.engine or command.program not in _USUAL_NAMES or environ.get("ARRIERO_ENGINE")
    try:
        return (
            find_engine(command.program, option=options.engine, environ=command.environ, cwd=cwd),
            [],
        )
    except NotFoundError:
        if named:
            raise
        rules = "Sizes follow the rules of the newest known build."
        text = f"No engine was found. {rules} Compute is a bound."
    except EngineError as error:
        if named:
            raise
        text = f"The engine here cannot be asked, so compute is a bound: {error.message}"
    return None, [PlanNote(id="engine", text=text)]


# --- the plan -----------------------------------------------------------------------------------


def _capping(points: Sequence[FrontierPoint]) -> Iterator[PlanNote]:
    """What was capped for the frontier, with the fewest and the most slots."""
    capped = [point for point in points if point.capped]
    if not capped:
        return
    told = [
        f"{' '.join(point.capped)} with {point.n_seq_max} slot{'s' * (point.n_seq_max > 1)}"
        for point in dict.fromkeys((capped[0], capped[-1]))
    ]
    yield PlanNote(
        id="pool",
        text="With the default sizes of prompt cache and checkpoints no context fits. The largest"
        f" contexts assume less for them: from {' to '.join(told)}.",
    )


class Planning:
    """One command's plan in the making; afterwards it answers what would be if."""

    what_if: WhatIf
    header: Header
    devices: tuple[ListedDevice, ...] = ()

    def __init__(
        self,
        command: Command,
        options: PlanOptions,
        engine: Engine | None,
        scratch: Path,
        cwd: Path,
        watch: Progress,
    ) -> None:
        self._command, self._options, self._engine = command, options, engine
        self._scratch, self._cwd, self._watch = scratch, cwd, watch
        self._notes: list[PlanNote] = []
        self._reads: HeaderReads | None = None
        self._begun = False

    def run(self, store: Store, notes: Sequence[PlanNote]) -> Plan:
        spec = spec_of(self._command)
        header, model = self._model(spec)
        draft, mmproj = (self._beside(name) for name in ("-md", "--mmproj"))
        devices = self._devices()
        unfit = self._misfit()
        held = self._options.budget if self._options.budget is not None else pools(devices)
        asked = None if unfit is not None and unfit.sure else self._asked(model, held, devices)
        planner = Planner(
            header,
            held,
            model=model,
            answers=DryRuns.of(asked, self._command.environ) if asked is not None else None,
            build=self._build,
            calibrations=self._past(store, header, devices),
            draft=draft,
            mmproj=mmproj,
            foreign=asked is None and unfit is None and self._options.assume_build is None,
        )
        base = planner.plan(self._command)
        answers = asked is not None and not any(note.id == "dry_run" for note in base.notes)
        found = self._told(base, spec, unfit, notes)
        self.devices = devices
        self.what_if = WhatIf(planner.quick, planner.plan if answers else None)
        self.header = header
        try:
            return self._advised(found, header, self.what_if)
        except KeyboardInterrupt:
            return msgspec.structs.replace(found, complete=False)

    @property
    def _build(self) -> int | None:
        return self._engine.build if self._engine else self._options.assume_build

    def _past(
        self, store: Store, header: Header, devices: Sequence[ListedDevice]
    ) -> tuple[Calibration, ...]:
        """What earlier runs took; on hardware one does not have, there are none."""
        here = devices if self._options.budget is None else ()
        return calibrations(store, header, engine=self._engine, build=self._build, devices=here)

    def _told(self, base: Plan, spec: str, unfit: Misfit | None, notes: Sequence[PlanNote]) -> Plan:
        """The plan with what is known of command, model and engine beside it."""
        return msgspec.structs.replace(
            base,
            id=new_id("plan"),
            model=msgspec.structs.replace(base.model, path=spec),
            argv=self._command.safe_argv(),
            engine=engine_record(self._engine) if self._engine else None,
            header=self._reads,
            failure=failure_of(unfit) if unfit is not None and unfit.sure else None,
            notes=(*notes, *self._notes, *base.notes),
        )

    def _advised(self, found: Plan, header: Header, what_if: WhatIf) -> Plan:
        if any(pool.is_short for pool in found.pools):
            self._step("looking for what to change", "each change is planned again")
        counsel = advise(self._command, header, what_if)
        notes = found.notes
        if counsel.missing:
            notes = (*notes, PlanNote(id="pool", text=counsel.missing))
        points: tuple[FrontierPoint, ...] = ()
        if self._options.frontier and found.context is not None:
            points = tuple(
                frontier(
                    self._command,
                    what_if,
                    kv_unified=found.context.kv_unified,
                    n_ctx_train=found.model.n_ctx_train,
                    on_slots=lambda n: self._step(
                        f"{n} slot{'s' if n != 1 else ''}", "the largest context that fits"
                    ),
                )
            )
            notes = (*notes, *_capping(points))
        return msgspec.structs.replace(found, advice=counsel.advice, frontier=points, notes=notes)

    def _step(self, text: str, why: str) -> None:
        if not self._begun:
            self._begun = True
            self._watch.begin(None)
        self._watch.step(text, why)

    # what is planned

    def _model(self, spec: str) -> tuple[Header, Path]:
        """The header, and a local file for a dry run: weightless where the model is elsewhere."""
        if not is_remote(spec):
            header = self._read(spec, "-m")
            return header, Path(header.parts[0].name)
        self._step("reading the header", "by range; nothing is downloaded")
        header = self._read(spec, "-m")
        path = self._scratch / "weightless.gguf"
        if self._engine is None:
            return header, path
        return header, skeleton.write_header(skeleton.neutral(header).header, path)[0]

    def _beside(self, flag: str) -> Header | None:
        """The header of another model that the command names, where it is a local file."""
        typed = self._command.value(flag)
        return None if typed is None or is_remote(typed) else self._read(typed, flag)

    def _read(self, spec: str, flag: str) -> Header:
        typed = spec if is_remote(spec) else str(limits.expanded(spec))
        try:
            source = open_model(typed, cwd=self._cwd, environ=self._command.environ)
        except NotFoundError as error:
            if is_remote(spec):
                raise
            hint = f"is the path after {flag} right, from here?"
            raise NotFoundError(error.message, hint=hint, id="no-model") from None
        try:
            header = read_source(source)
            if is_remote(spec):
                self._reads = HeaderReads(requests=source.requests, bytes=source.bytes_read)
            return header
        finally:
            source.close()

    # where

    def _devices(self) -> tuple[ListedDevice, ...]:
        if self._engine is None:
            return ()
        rpc = ",".join(workers(self._command)) or None
        try:
            return list_devices(self._engine, self._command.environ, rpc=rpc) or ()
        except ArrieroError as error:
            text = f"The engine did not list its devices: {error.message}"
            self._notes.append(PlanNote(id="engine", text=text))
            return ()

    def _misfit(self) -> Misfit | None:
        """What this machine's CPU lacks for the engine; of a budget's machine nothing is known."""
        if self._engine is None or self._options.budget is not None:
            return None
        found = misfit_of(self._engine, self._command)
        if found is not None:
            text = f"This engine was compiled for {found.told}"
            if found.sure:
                text = f"{text}; it is not asked, so compute is a bound; {INSTEAD}"
            self._notes.append(PlanNote(id="engine", text=text))
        return found

    def _asked(
        self, model: Path, held: Sequence[Pool], devices: Sequence[ListedDevice]
    ) -> Engine | None:
        """The engine, if it has the devices that are planned for."""
        if self._engine is None or self._options.budget is None:
            return self._engine
        request = launch_of(self._command, model).params
        named = [device for pool in held for device in pool.devices if device != "host"]
        here = {device.name for device in devices}
        missing = [name for name in chosen_devices(request, named) if name not in here]
        if not missing:
            return self._engine
        lacks = f"This engine has no {', '.join(missing)}"
        text = f"{lacks}: sizes come from formulas, compute is a bound."
        self._notes.append(PlanNote(id="engine", text=text))
        return None
