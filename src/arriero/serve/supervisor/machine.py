"""The life of a supervised engine as a pure function: state and event in, state and actions out.

No clock, no process and no request in here: see docs/decisions/0008-supervisor.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum

from arriero.base.words import Recovery
from arriero.serve.supervisor.interface import State
from arriero.serve.supervisor.policy import Fate, Lost, Policy, Tries, decide


class Phase(StrEnum):
    """Where in its life the engine is. Finer than what is told (:class:`State`)."""

    IDLE = "idle"
    LOADING = "loading"
    SERVING = "serving"
    ENDING = "ending"
    """It has been condemned and is being killed."""
    EXAMINED = "examined"
    """It is gone; why, and what comes next, is being found out."""
    RESTING = "resting"
    """Until memory is back, and for the pause between fruitless tries."""
    OVER = "over"


# what happens


@dataclass(frozen=True)
class Begin:
    """Start it for the first time."""


@dataclass(frozen=True)
class Answered:
    """A completion was answered while it was loading."""

    generation: int


@dataclass(frozen=True)
class Worked:
    """A client got a part of an answer."""

    generation: int


@dataclass(frozen=True)
class Condemned:
    """It hangs, answers nothing but errors, or has to go for another reason."""

    generation: int


@dataclass(frozen=True)
class Ended:
    """The process is gone, or could not be started."""

    generation: int


@dataclass(frozen=True)
class Examined:
    """It is known why, and whether another command could be run instead."""

    lost: Lost


@dataclass(frozen=True)
class Rested:
    """The time has come for the next start."""


@dataclass(frozen=True)
class Stop:
    """End for good."""


Event = Begin | Answered | Worked | Condemned | Ended | Examined | Rested | Stop


# what is to be done


@dataclass(frozen=True)
class Launch:
    """Start this generation; ``Answered`` or ``Ended`` tells how it went."""

    generation: int


@dataclass(frozen=True)
class Kill:
    """End it, the whole tree, at once or with the grace that a stop has; then ``Ended``."""

    generation: int
    gently: bool


@dataclass(frozen=True)
class Announce:
    """It takes requests from now on."""

    generation: int


@dataclass(frozen=True)
class Examine:
    """Find out why it ended; then ``Examined``."""

    generation: int


@dataclass(frozen=True)
class Rest:
    """Wait for memory and then for the pause; then ``Rested``."""

    seconds: float
    recovery: Recovery
    why: str


@dataclass(frozen=True)
class GiveUp:
    """Nothing will be started again."""

    why: str


@dataclass(frozen=True)
class Finish:
    """It was stopped and is gone."""


Action = Launch | Kill | Announce | Examine | Rest | GiveUp | Finish


@dataclass(frozen=True)
class Machine:
    """The state between two events."""

    policy: Policy = field(default_factory=Policy)
    phase: Phase = Phase.IDLE
    generation: int = 0
    """Starts so far; events of an earlier one mean nothing."""
    stopping: bool = False
    gave_up: str = ""
    tries: Tries = field(default_factory=Tries)

    @property
    def state(self) -> State:
        """As the contract has it, without draining, which is not the engine's business."""
        if self.phase is Phase.OVER:
            return State.FAILED if self.gave_up else State.DRAINING
        if self.phase is Phase.SERVING:
            return State.READY
        first = self.generation <= 1 and self.phase in (Phase.IDLE, Phase.LOADING)
        return State.STARTING if first else State.RECOVERING

    def step(self, event: Event, now: float) -> tuple[Machine, tuple[Action, ...]]:
        """The next state, and what is to be done. An event that does not belong changes nothing."""
        match event:
            case Begin() if self.phase is Phase.IDLE:
                return self._launch()
            case Answered(generation) if self._is(generation, Phase.LOADING):
                tries = replace(self.tries, served=True)
                return replace(self, phase=Phase.SERVING, tries=tries), (Announce(generation),)
            case Worked(generation) if self._is(generation, Phase.SERVING):
                return replace(self, tries=self.tries.worked()), ()
            case Condemned(generation) if self._is(generation, Phase.LOADING, Phase.SERVING):
                return replace(self, phase=Phase.ENDING), (Kill(generation, gently=False),)
            case Ended(generation) if self._is(
                generation, Phase.LOADING, Phase.SERVING, Phase.ENDING
            ):
                if self.stopping:
                    return replace(self, phase=Phase.OVER), (Finish(),)
                return replace(self, phase=Phase.EXAMINED), (Examine(generation),)
            case Examined(lost) if self.phase is Phase.EXAMINED:
                return self._decided(decide(self.policy, self.tries, lost, now), lost, now)
            case Rested() if self.phase is Phase.RESTING:
                return self._launch()
            case Stop() if not self.stopping:
                return self._stop()
        return self, ()

    def _is(self, generation: int, *phases: Phase) -> bool:
        return generation == self.generation and self.phase in phases

    def _launch(self) -> tuple[Machine, tuple[Action, ...]]:
        generation = self.generation + 1
        tries = replace(self.tries, served=False)
        following = replace(self, phase=Phase.LOADING, generation=generation, tries=tries)
        return following, (Launch(generation),)

    def _decided(self, fate: Fate, lost: Lost, now: float) -> tuple[Machine, tuple[Action, ...]]:
        if fate.recovery is Recovery.GIVE_UP:
            return replace(self, phase=Phase.OVER, gave_up=fate.why), (GiveUp(fate.why),)
        rest = Rest(fate.pause, fate.recovery, fate.why)
        return replace(self, phase=Phase.RESTING, tries=self.tries.after(lost, now)), (rest,)

    def _stop(self) -> tuple[Machine, tuple[Action, ...]]:
        stopped = replace(self, stopping=True)
        if self.phase in (Phase.LOADING, Phase.SERVING):
            kill = Kill(self.generation, gently=self.phase is Phase.SERVING)
            return replace(stopped, phase=Phase.ENDING), (kill,)
        if self.phase is Phase.ENDING:
            return stopped, ()
        if self.phase is Phase.OVER:
            return stopped, (Finish(),)
        return replace(stopped, phase=Phase.OVER), (Finish(),)
