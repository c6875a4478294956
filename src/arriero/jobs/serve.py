"""``arriero serve``: decide everything before the start, then keep the server up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from arriero.base.errors import ArrieroError, EngineError, UsageError
from arriero.base.paths import StrPath, texts
from arriero.base.redact import Redactor
from arriero.command import Command, ModelSource, builtin_flags, parse_command
from arriero.engine import Engine, find_engine
from arriero.jobs._baseline import refuse_printing
from arriero.jobs._engine import engine_record, misfit_of
from arriero.jobs._fitting import Fitted, chosen, doubts, fitted, refuse_misfit
from arriero.jobs._listening import listen_of, refuse_open, tls_of
from arriero.jobs._misuse import refuse_misuse
from arriero.jobs._models import with_model
from arriero.jobs._policy import Policy
from arriero.jobs.check import CheckOptions, check
from arriero.launch import Mode, serving_of
from arriero.machine import device_memory
from arriero.machine.cpu import INSTEAD
from arriero.process import scratch_directory, sweep, temporary_directory
from arriero.record import Event, Finding, PlanPool, Probe
from arriero.record.status import Gate
from arriero.report.progress import Progress, Silent
from arriero.serve.access import keys_in
from arriero.serve.assignment import Assignment, Note, Tell
from arriero.serve.gates import bounded_caches, saves_known_to_fail, saves_not_risked, saves_off
from arriero.serve.probe import Prober, at_risk
from arriero.serve.settings import Gates, Settings
from arriero.serve.settings_sources import Sources
from arriero.store import Store

_SERVER: Final = "llama-server"
_OWN: Final = frozenset({"open-without-key"})
"""Findings about what serve decides for itself."""
_SAVES: Final = "rpc-prompt-cache-abort"
_HOW: Final = "arriero serve model.gguf   or   arriero serve -- llama-server -m model.gguf …"


@dataclass(frozen=True)
class ServeOptions:
    """What ``arriero serve`` can be told.

    ``force`` starts also what does not fit. ``bare``: the words are options of llama-server with a
    model somewhere among them, and no program before them.
    """

    sources: Sources
    force: bool = False
    bare: bool = False


def serve(
    words: Sequence[StrPath],
    options: ServeOptions,
    *,
    tell: Tell,
    note: Note,
    store: Store | None = None,
    progress: Progress | None = None,
) -> int:
    """Serve a command until told to stop; the exit status.

    Raises:
        ArrieroError: It cannot be served; the message says why. Nothing has been started then.
    """
    assignment = assign(
        words, options, tell=tell, note=note, store=store or Store(), progress=progress or Silent()
    )
    from arriero.serve.server import serve as run  # late: only a server needs it

    return run(assignment, tell, note)


def assign(
    words: Sequence[StrPath],
    options: ServeOptions,
    *,
    tell: Tell,
    note: Note,
    store: Store,
    progress: Progress,
) -> Assignment:
    """Everything that is decided before the start.

    Raises:
        UsageError: No command, options that the engine would refuse, an open address without a key.
        NotFoundError: An engine or a model that was named is not there.
        EngineError: The engine cannot run here.
        ArrieroError: The command does not fit this machine (``does-not-fit``).
    """
    sources = options.sources
    settings = sources.settings()
    for left in sweep(temporary_directory()):
        note(f"removed what an earlier run left behind: {left}")
    command, engine = _command(texts(words), options, settings)
    serving = serving_of(command, sources.cwd)
    listen = listen_of(serving, settings, sources.cwd)
    refuse_open(listen, serving, settings)
    tls = tls_of(command, sources.cwd) if serving.tls else None
    _refuse_engine(engine, command, options, note)
    with scratch_directory(temporary_directory()) as scratch:
        ready = _Preparing(engine, options, settings, note, store, progress, scratch).run(command)
    for gate in ready.gates:
        note(f"changed {gate.change}: {gate.why}")
        tell(Event.gate(gate.change, gate.why))
    policy = Policy(engine, sources.cwd)
    keys = (key for path in settings.api_key_file for key in keys_in(path))
    return Assignment(
        command=ready.command,
        engine=engine,
        serving=serving,
        listen=listen,
        tls=tls,
        settings=settings,
        sources=sources,
        gates=ready.gates,
        pools=ready.pools,
        build=engine.build,
        model="" if serving.router else Path(command.model_source()[1] or "").name,
        redactor=Redactor.for_this_machine(secrets={*command.secrets(), *serving.api_keys, *keys}),
        store=store,
        environ=ready.command.exec_environ,
        cwd=sources.cwd,
        smaller=policy.smaller,
        without=policy.without,
    )


def redactor_of(command: Command, cwd: Path, keys: Iterable[str] = ()) -> Redactor:
    """A redactor that knows the secrets of a command, of its key files and these keys."""
    own = serving_of(command, cwd).api_keys
    return Redactor.for_this_machine(secrets={*command.secrets(), *own, *keys})


# --- the command --------------------------------------------------------------------------------


def _command(words: list[str], options: ServeOptions, settings: Settings) -> tuple[Command, Engine]:
    """The command to serve, read with the flags of the engine that runs it."""
    sources, bare = options.sources, options.bare and bool(words)
    words = words or list(sources.command())
    if not words:
        raise UsageError("no llama-server command given", hint=_HOW, id="no-command")
    typed = [_SERVER, *words] if bare else words
    command = parse_command(typed, builtin_flags(), sources.environ)
    refuse_printing(command)
    engine = find_engine(
        command.program, option=settings.engine, environ=command.environ, cwd=sources.cwd
    )
    command = command.with_flags(engine.flags)
    if bare:
        command = with_model(command)
        if command.model_source()[0] is ModelSource.ROUTER:
            raise UsageError("no model given", hint=_HOW, id="no-model-given")
    if not options.force:
        refuse_misuse(command, engine.flags)
    return command, engine


def _refuse_engine(engine: Engine, command: Command, options: ServeOptions, note: Note) -> None:
    """Raise for an engine that surely cannot run on this CPU; say it where that is not sure."""
    unfit = misfit_of(engine, command)
    if unfit is None:
        return
    told = f"the engine was compiled for {unfit.told}"
    if unfit.sure and not options.force:
        raise EngineError(told, hint=INSTEAD, id="engine-other-cpu")
    note(told)


# --- what is known before the start -------------------------------------------------------------


@dataclass(frozen=True)
class _Ready:
    """A command that may be started, and what was changed in it."""

    command: Command
    gates: tuple[Gate, ...] = ()
    pools: tuple[PlanPool, ...] = ()


@dataclass
class _Preparing:
    engine: Engine
    options: ServeOptions
    settings: Settings
    note: Note
    store: Store
    progress: Progress
    scratch: Path

    @property
    def _cwd(self) -> Path:
        return self.options.sources.cwd

    def run(self, command: Command) -> _Ready:
        """Plan it, refuse what does not fit, apply gates, check it, and say what is doubtful."""
        fit = self._fit(command)
        if fit is None:
            self._say(self._findings(command))
            return _Ready(command)
        if self.options.bare:
            fit, choice = chosen(fit)
            if choice:
                self.note(f"chosen so that it fits: {choice}")
        if not self.options.force:
            refuse_misfit(fit.plan)
        findings = self._findings(fit.command)
        gates: list[Gate] = []
        if self.settings.gates is Gates.AUTO:
            for gate in (self._bounded, self._saves):
                changed = gate(fit, findings)
                if changed is not None:
                    fit = fit.changed(changed[0])
                    gates.append(changed[1])
            findings = self._findings(fit.command) if gates else findings
        for doubt in doubts(fit.plan):
            self.note(doubt)
        self._say(findings)
        return _Ready(fit.command, tuple(gates), fit.plan.pools)

    def _fit(self, command: Command) -> Fitted | None:
        """Its plan; None where there can be none, which is said if it should be."""
        source, _ = command.model_source()
        if source is ModelSource.ROUTER:
            self.note("a router starts a server for each model: nothing is planned for it")
            return None
        try:
            return fitted(command, self.engine, self._cwd, self.scratch, self.store, self.progress)
        except ArrieroError as error:
            if source is ModelSource.FILE and not self.options.force:
                raise
            self.note(f"nothing is planned: {error.message}")
            return None

    def _bounded(self, fit: Fitted, _: Sequence[Finding]) -> tuple[Command, Gate] | None:
        return bounded_caches(fit.command, fit.plan, self.settings.memory_reserve)

    def _saves(self, fit: Fitted, findings: Sequence[Finding]) -> tuple[Command, Gate] | None:
        """Saves off where they may end the engine: by a probe, else by what is known."""
        command, devices = fit.command, at_risk(fit.command, fit.plan)
        if not devices or serving_of(command, self._cwd).mode is not Mode.TEXT:
            return None
        warned = next((one for one in findings if one.id == _SAVES), None)
        if warned and warned.applies == "yes" and warned.status == "reproduced":
            return saves_known_to_fail(command, devices, warned.because)
        probe = self._probed(fit, devices)
        if probe is not None and probe.outcome != "could not run":
            return saves_off(command, devices, probe)
        if warned is not None:
            return saves_not_risked(command, devices, warned.because)
        if probe is not None:
            self.note(f"saving prompts from {', '.join(devices)} could not be tried: {probe.why}")
        return None

    def _probed(self, fit: Fitted, devices: Sequence[str]) -> Probe | None:
        if fit.command.model_source()[0] is not ModelSource.FILE:
            return None
        prober = Prober(
            engine=self.engine,
            devices=fit.planning.devices,
            record=engine_record(self.engine),
            header=fit.planning.header,
            store=self.store,
            redactor=redactor_of(fit.command, self._cwd),
            scratch=self.scratch,
            cwd=self._cwd,
            device_memory=device_memory,
        )
        known = prober.known(fit.command)
        if known is not None:
            return known
        self.note(
            f"trying whether prompts can be saved from {', '.join(devices)}, with a copy of the"
            " model without weights; the result is kept"
        )
        return prober.probe(fit.command)

    def _findings(self, command: Command) -> tuple[Finding, ...]:
        """What is known to go wrong with the command."""
        own = CheckOptions(engine=self.engine.path)
        try:
            found = check(command.words, own, environ=command.inherited, cwd=self._cwd)
        except ArrieroError as error:
            self.note(f"nothing is checked: {error.message}")
            return ()
        return found.findings

    def _say(self, findings: Sequence[Finding]) -> None:
        for finding in findings:
            if finding.severity != "info" and finding.id not in _OWN:
                self.note(f"{finding.because} (arriero gotchas {finding.id})")
