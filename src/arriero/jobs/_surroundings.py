"""What surrounds a command: its place, engine, model, devices and workers, as far as can be known.

The model is read by its header only, the engine is asked for nothing but its version, flags and
devices, and workers are contacted only if that is asked for. Rooms that a command may need nothing
of are imported where they are used.
"""

from __future__ import annotations

import functools
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from arriero.base import limits
from arriero.base.errors import ArrieroError
from arriero.base.paths import StrPath
from arriero.command import Command, ModelSource, builtin_flags, parse_command
from arriero.command.flags import KNOWN
from arriero.command.place import Around, Mark, Place, fork_by_flags, fork_by_name
from arriero.gotchas import Facts
from arriero.jobs._source import Source
from arriero.launch import placement
from arriero.launch.projector import projector_file
from arriero.record import Plan

if TYPE_CHECKING:
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


@dataclass
class Engines:
    """The engines that commands name, each looked for once."""

    options: CheckOptions
    cwd: Path
    _found: dict[str | None, Engine | str] = field(default_factory=dict)
    """By the program that names one: the engine, or why there is none."""

    def of(self, command: Command, source: Source) -> Engine | str | None:
        """The engine of a command, or why there is none; None if none is to be asked.

        Raises:
            NotFoundError: The engine named by ``--engine`` is not there.
        """
        if self.options.assume_build is not None:
            return None
        from arriero.engine import find_engine

        program = command.program if source.may_run else None
        if program not in self._found:
            try:
                self._found[program] = find_engine(
                    program,
                    option=self.options.engine,
                    environ=source.engine_environ(),
                    cwd=self.cwd,
                )
            except ArrieroError as error:
                if self.options.engine is not None:
                    raise
                self._found[program] = error.message
        return self._found[program]


@dataclass
class Survey:
    """The survey of one command; ``notes`` tell what could not be known."""

    source: Source
    options: CheckOptions
    cwd: Path
    engines: Engines
    notes: list[str] = field(default_factory=list)

    def facts(self) -> Facts:
        """Everything that gotchas ask for."""
        build = self.options.assume_build
        command = parse_command(self.source.words, builtin_flags(build), self.source.environ)
        around = self._around(command)
        around = replace(around, marks=(*around.marks, *self._refusals(command, around)))
        place = around.place
        if build is None and place is not None:
            build = place.build
            command = command.with_flags(builtin_flags(build))
        engine = self._engine(command, place)
        if engine is not None:
            build, command = engine.build, command.with_flags(engine.flags)
        return self._facts(command, engine, build, around)

    def _facts(
        self, command: Command, engine: Engine | None, build: int | None, around: Around
    ) -> Facts:
        header = self._header(command)
        projector = self._beside(projector_file(command))
        devices: tuple[ListedDevice, ...] | None = None
        refused: Mapping[str, Refusal] = {}
        if around.place is None:
            devices, refused = self._devices(command, engine)
        pools = self._pools(header, devices, around)
        return Facts(
            command=command,
            build=build,
            engine=engine,
            header_or_none=header,
            projector_or_none=projector,
            pools=pools,
            devices_or_none=devices,
            workers_or_none=self._workers(command, devices),
            refused=refused,
            misfit=self._misfit(command, engine),
            planner=self._planner(header, pools, build, projector),
            around=around,
            own=engine is not None or build in KNOWN,
        )

    # the place

    def _around(self, command: Command) -> Around:
        """What is told about the command, and its place if that is not the engine at hand."""
        around = self.source.around
        if self.options.engine is not None or self.options.assume_build is not None:
            # The engine is what the user says; whose devices it will meet stays open.
            place = around.place and replace(around.place, devices=True, build=None)
            return replace(around, place=place if self.options.engine is None else None)
        if around.place is not None:
            return around
        return replace(around, place=self._place(command))

    def _refusals(self, command: Command, around: Around) -> tuple[Mark, ...]:
        """Why the engine would refuse the models preset that the command names, if it is here."""
        typed = command.value("--models-preset")
        if typed is None or command.model_source()[0] is not ModelSource.ROUTER:
            return ()  # with a model of its own no preset is read
        if any(mark.about == "preset" for mark in around.marks):
            return ()  # it is the very file that is checked
        path = limits.file_at(self.cwd, typed)
        if path is None:
            self.notes.append(f"there is no models preset {typed}: its models are not checked")
            return ()
        from arriero.command.inputs import preset_refusals

        try:
            found = preset_refusals(path, typed)
        except ArrieroError as error:
            self.notes.append(error.message)
            return ()
        if not found:
            self.notes.append(
                f"to check the models of {typed}, run: arriero check {shlex.quote(typed)}"
            )
        return found

    def _place(self, command: Command) -> Place | None:
        fork = fork_by_name(command.program)
        if fork is not None:
            return Place(f"{command.program} is {fork}", fork=fork)
        told = fork_by_flags(item.name for item in command.unknown)
        if told is not None:
            return Place(f"{told[1]} is an option of {told[0]}", fork=told[0])
        if self.source.written is None or not self.source.written.path:
            return None
        program = command.program
        is_path = any(mark in program for mark in "/\\")
        if is_path and not self._is_at_hand(program, command):
            here = limits.file_at(self.cwd, program) is not None
            why = "is not started to ask it, since a file names it" if here else "is not here"
            return Place(f"{program} {why}")
        if program.startswith("$"):
            return Place(f"{program} is left to others to fill in")
        model = command.model_path()
        if model is not None and limits.file_at(self.cwd, model) is not None:
            return None  # the file is for this machine
        name = Path(self.source.written.path).name
        return Place(f"nothing tells that {name} is for this machine", devices=True)

    def _is_at_hand(self, program: str, command: Command) -> bool:
        """Whether a path in a file is that of the engine that would be asked anyway."""
        engine = self.engines.of(command, self.source)
        if engine is None or isinstance(engine, str):
            return False
        try:
            return engine.path.samefile(self.cwd / program)
        except OSError:
            return False

    # the engine, its devices and workers

    def _engine(self, command: Command, place: Place | None) -> Engine | None:
        if place is not None and not place.devices:
            self.notes.append(f"another engine runs this command: {place.why}")
            return None
        found = self.engines.of(command, self.source)
        if not isinstance(found, str):
            return found
        self.notes.append(f"{found}: the flags and rules of the newest known build are used")
        return None

    def _misfit(self, command: Command, engine: Engine | None) -> Misfit | None:
        """Only for a command that would run here: a file's may be another machine's."""
        if engine is None or not self.source.may_run or self.options.budget is not None:
            return None
        from arriero.jobs._engine import misfit_of

        return misfit_of(engine, command)

    def _devices(
        self, command: Command, engine: Engine | None
    ) -> tuple[tuple[ListedDevice, ...] | None, Mapping[str, Refusal]]:
        """The devices, with those of workers if they are asked, and the workers it refuses."""
        workers = placement.workers(command) if self.options.probe else ()
        if workers and (engine is None or self.options.budget is not None):
            self.notes.append("no worker was contacted: --probe needs an engine, and no --budget")
        if engine is None or self.options.budget is not None:
            return None, {}
        from arriero.engine.devices import ask_workers

        try:
            return ask_workers(engine, self.source.engine_environ(), workers)
        except ArrieroError as error:
            self.notes.append(f"the engine does not list its devices: {error.message}")
            return None, {}

    def _workers(
        self, command: Command, devices: Sequence[ListedDevice] | None
    ) -> dict[str, bool] | None:
        """Which workers the engine could use; None where none was contacted."""
        if not self.options.probe or devices is None:
            return None
        answered = {device.description for device in devices if device.name.startswith("RPC")}
        return {endpoint: endpoint in answered for endpoint in placement.workers(command)}

    # the model, and what it can be planned on

    def _header(self, command: Command) -> Header | None:
        source, where = command.model_source()
        typed = command.model_path()
        if typed is None:
            if source is not ModelSource.ROUTER:
                self.notes.append(
                    f"the model {where} is not on this machine, so its header is unknown"
                )
            return None
        return self._beside(typed)

    def _beside(self, typed: str | None) -> Header | None:
        """The header of a file that the command names."""
        if typed is None:
            return None
        path = limits.file_at(self.cwd, typed)
        if path is None:
            self.notes.append(f"there is no model file {typed}, so its header is unknown")
            return None
        from arriero.gguf import read_header

        try:
            return read_header(path)
        except ArrieroError as error:
            self.notes.append(error.message)
            return None

    def _pools(
        self, header: Header | None, devices: Sequence[ListedDevice] | None, around: Around
    ) -> tuple[Pool, ...]:
        if self.options.budget is not None:
            return self.options.budget
        if around.place is not None or (header is None and not devices):
            return ()  # without a plan, what the host has is of no use
        from arriero.machine import pools

        return pools(devices or ())

    def _planner(
        self,
        header: Header | None,
        held: Sequence[Pool],
        build: int | None,
        projector: Header | None,
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
                self.notes.append(f"no plan: {error.message}")
                return None

        return planned
