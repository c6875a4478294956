"""What follows the loss of an engine: the same command, another one, or the end."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from arriero.base.words import Component, Evidence, Kind, Recovery
from arriero.logs.model import Failure

MEMORY: Final = frozenset(
    {Kind.ALLOCATION, Kind.RUNTIME_ALLOCATION, Kind.BUFFER_LIMIT, Kind.STATE_GROWTH}
)
"""Kinds whose cause is memory."""
_LASTING: Final = frozenset({Kind.CONFIG, Kind.MODEL, Kind.ENVIRONMENT, Kind.BUFFER_LIMIT})
"""Kinds that the same command meets again each time it loads."""
_SAME_NAMED: Final = 2
_SAME_INFERRED: Final = 3
"""Loads in a row that may fail in one way, if the log names it or not."""
_LONGEST_PAUSE: Final = 30.0
_KEPT: Final = 8


@dataclass(frozen=True)
class Policy:
    """How often it is tried again: ``--restarts N/SECONDS``.

    Only restarts after which no client got an answer count: an engine that works between two
    deaths is started as often as it dies.
    """

    restarts: int = 5
    seconds: float = 600.0
    first_pause: float = 1.0
    """Before the second fruitless restart; each further one waits twice as long."""


@dataclass(frozen=True)
class Lost:
    """An engine that is gone.

    Attributes:
        served: It had answered a completion.
        alternative: Which other command could be run instead, if any.
        wanted: It was ended on purpose, to be started again.
        memory: Memory was the cause.
    """

    failure: Failure
    served: bool
    alternative: Recovery | None = None
    wanted: bool = False
    memory: bool = False


@dataclass(frozen=True)
class Tries:
    """What has been tried since a client last got an answer."""

    fruitless: tuple[float, ...] = ()
    """When it was started again."""
    failed_loads: int = 0
    """In a row, in the way of ``failed_as``."""
    failed_as: tuple[Kind, str | None] | None = None
    served: bool = False
    """The present start has answered a completion."""
    ever_served: bool = False
    """An earlier start with this command has."""
    short: tuple[float, ...] = ()
    """When memory was the cause, with this command."""

    def worked(self) -> Tries:
        """A client got a part of an answer."""
        return Tries(served=self.served, ever_served=True, short=self.short)

    def failing(self, lost: Lost) -> int:
        """Loads in a row that failed as this one did, with it."""
        return self.failed_loads + 1 if self.failed_as == _way(lost.failure) else 1

    def after(self, lost: Lost, now: float) -> Tries:
        """One more start follows this loss."""
        fruitless = self.fruitless if lost.wanted else (*self.fruitless, now)
        if lost.alternative is not None:
            return Tries(fruitless)
        short = (*self.short[-_KEPT:], now) if lost.memory else self.short
        if lost.served:
            return Tries(fruitless, ever_served=True, short=short)
        count, way = self.failing(lost), _way(lost.failure)
        return replace(
            self, fruitless=fruitless, failed_loads=count, failed_as=way, served=False, short=short
        )


@dataclass(frozen=True)
class Fate:
    """What is done now, and why."""

    recovery: Recovery
    why: str
    pause: float = 0.0


def wants_another(
    policy: Policy, tries: Tries, *, memory: bool, worker: bool, worked: bool, now: float
) -> bool:
    """Whether another command is to be planned.

    One that has answered requests is started again as it was when memory runs out for the first
    time: something else may have taken it, and a smaller one would refuse requests that this one
    answers. If it happens again within the window, or before anything was answered, it is too
    large.
    """
    again = any(now - at < policy.seconds for at in tries.short)
    return worker or (memory and (not worked or again))


def ends_in_a_save(failure: Failure) -> bool:
    """Whether the engine ended while it saved a prompt, and not for want of memory alone."""
    return failure.component is Component.PROMPT_CACHE and failure.kind not in MEMORY


def decide(policy: Policy, tries: Tries, lost: Lost, now: float) -> Fate:
    """What to do about a loss."""
    recent = [at for at in tries.fruitless if now - at < policy.seconds]
    if lost.wanted:
        return Fate(Recovery.RESTART, lost.failure.text)
    if len(recent) >= policy.restarts:
        return Fate(Recovery.GIVE_UP, _exhausted(policy, lost))
    pause = _pause(policy, len(recent))
    if lost.alternative is not None:
        return Fate(lost.alternative, _because(lost), pause)
    if not lost.served and (why := _hopeless(tries, lost)):
        return Fate(Recovery.GIVE_UP, why)
    return Fate(Recovery.RESTART, _because(lost), pause)


def _hopeless(tries: Tries, lost: Lost) -> str:
    """Why the same load would fail again; empty if it may not."""
    failure = lost.failure
    named = failure.evidence is Evidence.NAMED
    if failure.kind in _LASTING and named and not tries.ever_served:
        return f"it cannot load: {failure.text}"
    if failure.kind in (Kind.KILLED, Kind.RPC) or tries.ever_served:
        return ""
    count = tries.failing(lost)
    if count >= (_SAME_NAMED if named else _SAME_INFERRED):
        return f"it failed to load {count} times in the same way: {failure.text}"
    return ""


def _exhausted(policy: Policy, lost: Lost) -> str:
    times = "once" if policy.restarts == 1 else f"{policy.restarts} times"
    if policy.restarts <= 0:
        return f"it is not to be restarted (--restarts 0): {lost.failure.text}"
    return (
        f"restarted {times} in {policy.seconds:g} s without an answered request in between "
        f"(--restarts {policy.restarts}/{policy.seconds:g}): {lost.failure.text}"
    )


def _because(lost: Lost) -> str:
    if lost.alternative is Recovery.SMALLER and ends_in_a_save(lost.failure):
        return "saving a prompt ended it: prompts are not saved any more"
    if lost.alternative is Recovery.SMALLER:
        return "the same command would not fit: memory was the cause"
    if lost.alternative is Recovery.WITHOUT_WORKER:
        return "a worker is gone, and the rest fits without it"
    return "it worked with this command" if lost.served else "it may load the next time"


def _pause(policy: Policy, fruitless: int) -> float:
    if fruitless == 0:
        return 0.0
    return float(min(policy.first_pause * 2 ** (fruitless - 1), _LONGEST_PAUSE))


def _way(failure: Failure) -> tuple[Kind, str | None]:
    return failure.kind, failure.component
