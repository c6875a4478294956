"""``arriero check``: what is known to break about a command, before it is started.

The model is read by its header only, the engine is asked for nothing but its version, flags and
devices, and workers are contacted only if that is asked for. Rooms that a command may need nothing
of are imported where they are used.
"""

from __future__ import annotations

import functools
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from arriero.base import limits
from arriero.base.errors import ArrieroError, UsageError
from arriero.base.paths import StrPath, texts
from arriero.base.redact import Redactor
from arriero.command import Command, ModelSource, builtin_flags, parse_command, split_text
from arriero.command.flags import KNOWN
from arriero.command.place import Around, Mark, Place, fork_by_flags, fork_by_name, is_server
from arriero.command.spelling import respelled
from arriero.gotchas import Facts, Registry, match, registry, repair
from arriero.gotchas.matching import Said
from arriero.gotchas.verdicts import on
from arriero.jobs._engine import engine_record
from arriero.launch import placement
from arriero.launch.projector import projector_file
from arriero.record import Check, Checks, Finding, Plan

if TYPE_CHECKING:
    from arriero.command.inputs.model import Written
    from arriero.engine import Engine, ListedDevice
    from arriero.engine.devices import Refusal
    from arriero.gguf import Header
    from arriero.machine import Misfit, Pool
    from arriero.memory import Planner


@dataclass(frozen=True)
class CheckOptions:
    """What ``arriero check`` can be told.

    ``budget`` is in place of this machine's memory. ``assume_build`` takes the flags and rules of a
    build and asks no engine. ``probe`` lets the engine connect to the workers of the command.
    """

    engine: StrPath | None = None
    budget: tuple[Pool, ...] | None = None
    assume_build: int | None = None
    probe: bool = False


@dataclass(frozen=True)
class _Source:
    """The words of one command and where each stands."""

    words: Sequence[str]
    environ: Mapping[str, str]
    written: Written | None = None
    notes: tuple[str, ...] = ()
    may_run: bool = True
    """Whether the program that the command names may be started: never one that a file names, or
    that something else would start."""

    def engine_environ(self) -> dict[str, str]:
        """For the engine that is asked: of variables from elsewhere only which devices it sees."""
        from arriero.machine import visibility

        own = self.environ if self.may_run else visibility(self.environ)
        return {**os.environ, **own}

    @property
    def around(self) -> Around:
        """What a file or a wrapper tells about it."""
        return self.written.around if self.written is not None else Around()

    def locate(self, command: Command, flag: str | int | None) -> str | None:
        """``file:line`` of the last use of a flag, of a line, or of the command."""
        if self.written is None or not self.written.path:
            return None
        line = self.written.line
        if isinstance(flag, int):
            return f"{self.written.path}:{flag}"
        wanted = command.flags.get(flag) if flag else None
        for item in command.items:
            if item.name == flag or (wanted is not None and item.flag is wanted):
                line = self.written.lines[item.at]
        return f"{self.written.path}:{line}"


def check(
    words: Sequence[StrPath],
    options: CheckOptions | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    cwd: StrPath | None = None,
) -> Check:
    """Check one command, also one that ``docker run``, ``sudo`` or the like would start.

    Raises:
        UsageError: It is no llama-server command.
        NotFoundError: The engine named by ``--engine`` is not there.
    """
    words, environ = texts(words), dict(os.environ if environ is None else environ)
    if not any(words):
        raise UsageError("no llama-server command to check", id="no-command")
    checking = _Checking(options or CheckOptions(), Path(cwd or Path.cwd()))
    try:
        source = _Source(words, environ)
        program = parse_command(words, builtin_flags(), environ).program
        if not is_server(program) and (behind := _behind(words)) is not None:
            source = behind
        return checking.check(source)
    except UsageError as error:
        behind = _behind(words) if error.id == "wrapper-refused" else None
        if behind is None:
            raise
    return checking.check(behind)


def _behind(words: Sequence[str]) -> _Source | None:
    """The server's command behind one that cannot be run here, with the variables it is given."""
    from arriero.command.inputs import command_behind

    words = split_text(words[0]) if len(words) == 1 else words
    found = command_behind(words, builtin_flags())
    if found is None:
        return None
    note = "only the llama-server command is checked, without what starts it"
    notes = (note, *found.notes)
    return _Source(found.words, found.env, found, notes, may_run=False)


def check_file(
    path: StrPath, options: CheckOptions | None = None, *, cwd: StrPath | None = None
) -> Check | Checks:
    """Check every command of a file. The environment of this process has no part in it.

    Raises:
        NotFoundError: There is no such file.
        UsageError: It holds no command, or cannot be read.
    """
    from arriero.command.inputs import read_commands  # late: it reads YAML

    found = read_commands(Path(path), builtin_flags())
    checking = _Checking(options or CheckOptions(), Path(cwd or Path.cwd()))
    checks = tuple(map(checking.check_written, found))
    return checks[0] if len(checks) == 1 else Checks(checks=checks)


@dataclass
class _Checking:
    options: CheckOptions
    cwd: Path
    rules: Registry = field(default_factory=registry)
    engines: dict[str | None, Engine | str] = field(default_factory=dict)
    """By the program that names one: the engine, or why there is none."""
    said: Said = field(default_factory=lambda: functools.cache(on))

    def check_written(self, written: Written) -> Check:
        try:
            return self.check(
                _Source(written.words, written.env, written, written.notes, may_run=False)
            )
        except UsageError as error:
            where = f"{written.path}:{written.line}"
            raise UsageError(f"{where}: {error.message}", hint=error.hint, id=error.id) from None

    def check(self, source: _Source) -> Check:
        notes = list(source.notes)
        build = self.options.assume_build
        command = parse_command(source.words, builtin_flags(build), source.environ)
        around = self._around(command, source)
        around = replace(around, marks=(*around.marks, *self._refusals(command, around, notes)))
        place = around.place
        if build is None and place is not None:
            build = place.build
            command = command.with_flags(builtin_flags(build))
        engine = None
        if place is None or place.devices:
            engine = self._engine(command, source, notes)
        else:
            notes.append(f"another engine runs this command: {place.why}")
        if engine is not None:
            command = command.with_flags(engine.flags)
        facts = self._facts(command, engine, source, notes, around, build)
        found = match(
            facts, self.rules, self.said,
            locate=lambda flag: source.locate(command, flag),
        )  # fmt: skip
        fixed, applied = repair(facts, self.rules, self.said)
        first = {_mended(finding) for finding in found.findings}
        changed = fixed.words != command.words
        redactor = Redactor.for_this_machine(secrets=set(command.secrets()))
        spelled, otherwise = respelled(fixed, source.written, redactor.secrets)
        check = redactor.scrub(
            Check(
                argv=command.safe_argv(),
                findings=found.findings,
                fixed_argv=fixed.safe_argv() if changed else None,
                later=tuple(one for one in applied if _mended(one) not in first),
                where=source.locate(command, None),
                build=facts.build,
                engine=engine_record(engine) if engine else None,
                unchecked=found.unchecked,
                notes=tuple(dict.fromkeys(notes)),
            )
        )
        # Each text is scrubbed already, and "$KEY" behind --api-key tells no key.
        return msgspec.structs.replace(check, spelled=spelled, spelled_otherwise=otherwise)

    def _around(self, command: Command, source: _Source) -> Around:
        """What is told about the command, and its place if that is not the engine at hand."""
        around = source.around
        if self.options.engine is not None or self.options.assume_build is not None:
            # The engine is what the user says; whose devices it will meet stays open.
            place = around.place and replace(around.place, devices=True, build=None)
            return replace(around, place=place if self.options.engine is None else None)
        if around.place is not None:
            return around
        return replace(around, place=self._place(command, source))

    def _refusals(self, command: Command, around: Around, notes: list[str]) -> tuple[Mark, ...]:
        """Why the engine would refuse the models preset that the command names, if it is here."""
        typed = command.value("--models-preset")
        if typed is None or command.model_source()[0] is not ModelSource.ROUTER:
            return ()  # with a model of its own no preset is read
        if any(mark.about == "preset" for mark in around.marks):
            return ()  # it is the very file that is checked
        path = limits.file_at(self.cwd, typed)
        if path is None:
            notes.append(f"there is no models preset {typed}: its models are not checked")
            return ()
        from arriero.command.inputs import preset_refusals

        try:
            found = preset_refusals(path, typed)
        except ArrieroError as error:
            notes.append(error.message)
            return ()
        if not found:
            notes.append(f"to check the models of {typed}, run: arriero check {shlex.quote(typed)}")
        return found

    def _place(self, command: Command, source: _Source) -> Place | None:
        fork = fork_by_name(command.program)
        if fork is not None:
            return Place(f"{command.program} is {fork}", fork=fork)
        told = fork_by_flags(item.name for item in command.unknown)
        if told is not None:
            return Place(f"{told[1]} is an option of {told[0]}", fork=told[0])
        if source.written is None or not source.written.path:
            return None
        program = command.program
        if any(mark in program for mark in "/\\") and not self._is_at_hand(
            program, command, source
        ):
            here = limits.file_at(self.cwd, program) is not None
            why = "is not started to ask it, since a file names it" if here else "is not here"
            return Place(f"{program} {why}")
        if program.startswith("$"):
            return Place(f"{program} is left to others to fill in")
        model = command.model_path()
        if model is not None and limits.file_at(self.cwd, model) is not None:
            return None  # the file is for this machine
        name = Path(source.written.path).name
        return Place(f"nothing tells that {name} is for this machine", devices=True)

    def _is_at_hand(self, program: str, command: Command, source: _Source) -> bool:
        """Whether a path in a file is that of the engine that would be asked anyway."""
        engine = self._engine(command, source, [])
        try:
            return engine is not None and engine.path.samefile(self.cwd / program)
        except OSError:
            return False

    def _engine(self, command: Command, source: _Source, notes: list[str]) -> Engine | None:
        if self.options.assume_build is not None:
            return None
        from arriero.engine import find_engine

        program = command.program if source.may_run else None
        if program not in self.engines:
            try:
                self.engines[program] = find_engine(
                    program,
                    option=self.options.engine,
                    environ=source.engine_environ(),
                    cwd=self.cwd,
                )
            except ArrieroError as error:
                if self.options.engine is not None:
                    raise
                self.engines[program] = error.message
        found = self.engines[program]
        if not isinstance(found, str):
            return found
        notes.append(f"{found}: the flags and rules of the newest known build are used")
        return None

    def _facts(
        self,
        command: Command,
        engine: Engine | None,
        source: _Source,
        notes: list[str],
        around: Around,
        build: int | None,
    ) -> Facts:
        header = self._header(command, notes)
        projector = self._beside(projector_file(command), notes)
        devices: tuple[ListedDevice, ...] | None = None
        refused: Mapping[str, Refusal] = {}
        if around.place is None:
            devices, refused = self._devices(command, engine, source, notes)
        held = self._pools(header, devices, around)
        build = engine.build if engine is not None else build

        return Facts(
            command=command,
            build=build,
            engine=engine,
            header_or_none=header,
            projector_or_none=projector,
            pools=held,
            devices_or_none=devices,
            workers_or_none=self._workers(command, devices),
            refused=refused,
            misfit=self._misfit(command, engine, source),
            planner=self._planner(header, held, build, projector, notes),
            around=around,
            own=engine is not None or build in KNOWN,
        )

    def _planner(
        self,
        header: Header | None,
        held: Sequence[Pool],
        build: int | None,
        projector: Header | None,
        notes: list[str],
    ) -> Callable[[Command], Plan | None]:
        """Plans by formulas; the room that makes them is loaded for the first one."""
        if header is None:
            return lambda _: None
        path = self.cwd / Path(header.parts[0].name)

        @functools.cache
        def plans() -> Planner:
            from arriero.memory import Planner

            return Planner(header, held, model=path, build=build, mmproj=projector)

        def planned(changed: Command) -> Plan | None:
            try:
                return plans().quick(changed)
            except ArrieroError as error:
                notes.append(f"no plan: {error.message}")
                return None

        return planned

    def _misfit(self, command: Command, engine: Engine | None, source: _Source) -> Misfit | None:
        """Only for a command that would run here: a file's may be another machine's."""
        if engine is None or not source.may_run or self.options.budget is not None:
            return None
        from arriero.jobs._engine import misfit_of

        return misfit_of(engine, command)

    def _pools(
        self, header: Header | None, devices: Sequence[ListedDevice] | None, around: Around
    ) -> tuple[Pool, ...]:
        if self.options.budget is not None:
            return self.options.budget
        if around.place is not None or (header is None and not devices):
            return ()  # without a plan, what the host has is of no use
        from arriero.machine import pools

        return pools(devices or ())

    def _header(self, command: Command, notes: list[str]) -> Header | None:
        source, where = command.model_source()
        typed = command.model_path()
        if typed is None:
            if source is not ModelSource.ROUTER:
                notes.append(f"the model {where} is not on this machine, so its header is unknown")
            return None
        return self._beside(typed, notes)

    def _beside(self, typed: str | None, notes: list[str]) -> Header | None:
        """The header of a file that the command names."""
        if typed is None:
            return None
        path = limits.file_at(self.cwd, typed)
        if path is None:
            notes.append(f"there is no model file {typed}, so its header is unknown")
            return None
        from arriero.gguf import read_header

        try:
            return read_header(path)
        except ArrieroError as error:
            notes.append(error.message)
            return None

    def _devices(
        self, command: Command, engine: Engine | None, source: _Source, notes: list[str]
    ) -> tuple[tuple[ListedDevice, ...] | None, Mapping[str, Refusal]]:
        """The devices, with those of workers if they are asked, and the workers it refuses."""
        workers = placement.workers(command) if self.options.probe else ()
        if workers and (engine is None or self.options.budget is not None):
            notes.append("no worker was contacted: --probe needs an engine, and no --budget")
        if engine is None or self.options.budget is not None:
            return None, {}
        from arriero.engine.devices import ask_workers

        try:
            return ask_workers(engine, source.engine_environ(), workers)
        except ArrieroError as error:
            notes.append(f"the engine does not list its devices: {error.message}")
            return None, {}

    def _workers(
        self, command: Command, devices: Sequence[ListedDevice] | None
    ) -> dict[str, bool] | None:
        """Which workers the engine could use; None where none was contacted."""
        if not self.options.probe or devices is None:
            return None
        answered = {device.description for device in devices if device.name.startswith("RPC")}
        return {endpoint: endpoint in answered for endpoint in placement.workers(command)}


def _mended(finding: Finding) -> tuple[str, ...]:
    """What a finding's edit is about: a gotcha may ask for several, one after the other."""
    return (finding.id, *(edit.flag for edit in finding.edit or ()))


def worst(document: Check | Checks) -> str | None:
    """The highest severity among all findings."""
    checks = document.checks if isinstance(document, Checks) else (document,)
    found = {finding.severity for check in checks for finding in check.findings}
    return next((level for level in ("error", "warning", "info") if level in found), None)


def fixed_lines(document: Check | Checks) -> tuple[str, ...]:
    """The repaired command of each check as it would be written; as it was if nothing changed."""
    checks = document.checks if isinstance(document, Checks) else (document,)
    return tuple(" ".join(check.spelled) for check in checks)


def fixed_notes(document: Check | Checks) -> tuple[str, ...]:
    """Where those are not what the file has, with the place if there are several."""
    if isinstance(document, Check):
        return document.spelled_otherwise
    return tuple(
        f"{one.where}: {note}" for one in document.checks for note in one.spelled_otherwise
    )
