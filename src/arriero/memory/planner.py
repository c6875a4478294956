"""Plans for the commands of one model on one machine, each made once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from arriero.base.errors import ArrieroError
from arriero.command import Command
from arriero.engine.oracle import Unanswered
from arriero.gguf import Header, describe
from arriero.launch import Launch, launch_of
from arriero.launch.params import EngineParams, ProjectorParams
from arriero.machine import Pool
from arriero.memory.calibration import Calibration
from arriero.memory.dry_runs import Answers
from arriero.memory.plan.budget import budget
from arriero.memory.plan.inputs import Basis
from arriero.memory.threads import reserved_address_space
from arriero.record import Plan


class Planner:
    """What commands of one model will take, and whether the pools hold it.

    Plans are kept by what decides them: two commands that mean the same have the same plan.

    Args:
        pools: The machine's, or those of :func:`parse_pools`; their devices are what the model is
            spread over.
        model: The local file that a dry run reads; the header may come from elsewhere.
        answers: What the engine says of sizes; null where formulas alone decide.
        build: The build to take the rules of; null is the newest.
        calibrations: From earlier runs.
        draft: Header of ``--model-draft``, if the command has one and it could be read.
        mmproj: Header of ``--mmproj``, likewise.
        foreign: The machine is another one, whose build may be older than ``build``.
    """

    def __init__(
        self,
        header: Header,
        pools: Sequence[Pool],
        *,
        model: Path,
        answers: Answers | None = None,
        build: int | None = None,
        calibrations: Sequence[Calibration] = (),
        draft: Header | None = None,
        mmproj: Header | None = None,
        foreign: bool = False,
    ) -> None:
        self.header, self.pools, self.model = header, tuple(pools), model
        self.answers = answers
        """Null as well once the engine had none."""
        self._build, self._foreign, self._calibrations = build, foreign, tuple(calibrations)
        self._draft, self._mmproj = draft, mmproj
        self._plans: dict[tuple[Launch, int, bool], Plan] = {}

    def plan(self, command: Command) -> Plan:
        """The best plan there is: sizes are the engine's own where it tells them.

        Raises:
            ModelError: The header is one that llama.cpp would refuse.
            UsageError: The command names a device that is not there, or a pattern that is none.
        """
        return self._plan(command, self.answers)

    def quick(self, command: Command) -> Plan:
        """The plan by formulas alone; raises as :meth:`plan` does."""
        return self._plan(command, None)

    def plans(self, commands: Sequence[Command]) -> list[Plan | None]:
        """One plan for each command; null where the header or the command makes none possible.

        A dry run answers many requests nearly as fast as one, so they are put together. An engine
        that leaves one of them without an answer is asked no further.
        """
        if self.answers is not None:
            heard = _Heard()
            for command in commands:
                self._possible(command, heard)
            if not self.answers.prepare(heard.requests):
                self.answers = None
        return [self._possible(command, self.answers) for command in commands]

    def _possible(self, command: Command, answers: Answers | None) -> Plan | None:
        try:
            return self._plan(command, answers)
        except ArrieroError:
            return None

    def _plan(self, command: Command, answers: Answers | None) -> Plan:
        basis = self._basis
        trained = basis.about.n_ctx_train or 0
        launch = launch_of(command, self.model, n_ctx_train=trained, build=self._build)
        slots, threads = launch.params.n_seq_max, launch.http_threads
        reserved = reserved_address_space(slots, threads, command.environ)
        key = (launch, reserved, answers is None)
        if (made := self._plans.get(key)) is None:
            made = budget(basis, launch, reserved, answers)
            if not isinstance(answers, _Heard):
                self._plans[key] = made
        return made

    @cached_property
    def _basis(self) -> Basis:
        return Basis(
            header=self.header,
            about=describe(self.header),
            pools=self.pools,
            build=self._build,
            calibrations=self._calibrations,
            draft=self._draft,
            mmproj=self._mmproj,
            foreign=self._foreign,
        )


class _Heard:
    """Answers nothing, and remembers what it was asked for."""

    def __init__(self) -> None:
        self.requests: list[EngineParams] = []

    def sizes(self, request: EngineParams) -> Unanswered:
        self.requests.append(request)
        return Unanswered("not asked yet")

    def projector(self, request: ProjectorParams) -> Unanswered:
        return Unanswered("not asked yet")

    def prepare(self, requests: Sequence[EngineParams]) -> bool:
        return False
