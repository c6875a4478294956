"""What the engine says of itself: its slots and its tokens."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from arriero.base import limits
from arriero.record import ServedTokens, SlotUse, Status
from arriero.serve.control.interface import View

FRESH: Final = 0.5
"""Seconds for which an answer of the engine is not asked for again, however many look."""
_PATIENCE: Final = 5.0
"""Seconds that an engine that did not answer is left in peace."""
_SETTLING: Final = 2
"""How often an engine without requests is asked: it counts a little after it has answered."""
_LATELY: Final = 30.0
"""Seconds over which speeds are taken."""
_COUNTERS: Final = {
    "llamacpp:prompt_tokens_total": "prompt",
    "llamacpp:prompt_tokens_cached_total": "reused",
    "llamacpp:tokens_predicted_total": "predicted",
    "llamacpp:prompt_seconds_total": "prompt_s",
    "llamacpp:tokens_predicted_seconds_total": "predicted_s",
}
_OWN: Final = ("arriero_", "process_", "python_")
"""Beginnings of the names that are Arriero's in its metrics."""


class _Slot(msgspec.Struct):
    """What is read of a slot: nothing that can be text of a client."""

    id: int
    n_ctx: int | None = None
    is_processing: bool = False
    n_prompt_tokens: int | None = None
    n_prompt_tokens_cache: int | None = None


@dataclass(frozen=True, slots=True)
class Counted:
    """Counters of one moment: tokens, and seconds that the engine worked on them."""

    prompt: float = 0
    reused: float | None = None
    predicted: float = 0
    prompt_s: float = 0
    predicted_s: float = 0

    def __add__(self, other: Counted) -> Counted:
        reused = [one for one in (self.reused, other.reused) if one is not None]
        return Counted(
            self.prompt + other.prompt,
            sum(reused) if reused else None,
            self.predicted + other.predicted,
            self.prompt_s + other.prompt_s,
            self.predicted_s + other.predicted_s,
        )


def slots_in(answer: bytes) -> tuple[SlotUse, ...]:
    """The slots in an answer to ``/slots``; none where it is something else."""
    if len(answer) > limits.REPLY:
        return ()
    try:
        slots = msgspec.json.decode(answer, type=list[_Slot])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ()
    return tuple(
        SlotUse(
            id=one.id,
            busy=one.is_processing,
            tokens=one.n_prompt_tokens or 0,
            n_ctx=one.n_ctx,
        )
        for one in slots[: limits.SLOTS]
    )


def counted_in(metrics: str) -> Counted | None:
    """The counters in the engine's metrics; None where they are not there."""
    found: dict[str, float] = {}
    for line in metrics.splitlines():
        name, _, value = line.partition(" ")
        if name in _COUNTERS:
            try:
                found[_COUNTERS[name]] = float(value)
            except ValueError:
                return None
    return Counted(**found) if "prompt" in found and "predicted" in found else None


def foreign_metrics(metrics: str) -> str:
    """The engine's metrics as they can stand behind Arriero's own: no name twice."""
    lines = [
        line
        for line in metrics.splitlines()
        if line and not line.removeprefix("# HELP ").removeprefix("# TYPE ").startswith(_OWN)
    ]
    return "".join(line + "\n" for line in lines)


class Figures:
    """The engine's figures, asked for when somebody looks and kept over its restarts.

    Args:
        view: Through which the engine is asked.
        clock: Seconds.
    """

    def __init__(self, view: View, clock: Callable[[], float] = time.monotonic) -> None:
        self._view, self._clock = view, clock
        self._pid: int | None = None
        self._settled = (-1, 0)
        self._asked = float("-inf")
        self._before = Counted()
        self._now: Counted | None = None
        self._samples: deque[tuple[float, Counted]] = deque(maxlen=256)
        self._speeds: tuple[float | None, float | None] = (None, None)
        self.slots: tuple[SlotUse, ...] = ()
        self.metrics = ""

    async def refresh(self) -> None:
        """Ask the engine anew, unless that was done just now or would keep it from sleeping."""
        status = self._view.status()
        pid = status.engine.pid
        if pid != self._pid:
            self._begin(pid)
        if self._view.asleep:
            self.slots = ()  # it gave them up
        if pid is None or self._clock() - self._asked < FRESH or not self._worth(status):
            return
        # Set before the first wait: whoever looks meanwhile gets what is known.
        self._asked = self._clock()
        slots, metrics = await self._view.ask("/slots"), await self._view.ask("/metrics")
        if pid != self._pid:
            return
        if slots is None and metrics is None:
            self._asked = self._clock() + _PATIENCE
        if slots is not None:
            self.slots = slots_in(slots)
        if metrics is not None and len(metrics) <= limits.REPLY:
            self._count(metrics.decode("utf-8", "replace"))

    def _worth(self, status: Status) -> bool:
        """Whether the engine can have other figures, and asking does not wake it.

        Each question is a line in its log, and it sleeps only if it is asked nothing.
        """
        requests = status.requests
        if requests.in_flight:
            self._settled = (-1, 0)
            return True
        received, times = self._settled
        times = times + 1 if received == requests.received else 1
        if self._view.asleep or times > _SETTLING:
            return False
        self._settled = (requests.received, times)
        return True

    def tokens(self) -> ServedTokens:
        """Tokens since the server began, over all starts of the engine."""
        if self._now is None and self._before == Counted():
            return ServedTokens()
        whole = self._before + (self._now or Counted())
        return ServedTokens(
            prompt=round(whole.prompt),
            reused=None if whole.reused is None else round(whole.reused),
            predicted=round(whole.predicted),
            prompt_tps=self._speeds[0],
            predict_tps=self._speeds[1],
        )

    def _begin(self, pid: int | None) -> None:
        """Another start: its counters begin at zero."""
        if self._now is not None:
            self._before = self._before + self._now
        self._pid, self._now = pid, None
        self._asked = float("-inf")
        self._samples.clear()
        self._settled = (-1, 0)
        self.slots, self.metrics = (), ""

    def _count(self, metrics: str) -> None:
        self.metrics = foreign_metrics(metrics)
        counted = counted_in(metrics)
        if counted is None:
            return
        at = self._clock()
        if not self._samples:
            self._samples.append((at - FRESH, Counted(reused=counted.reused)))
        self._now = counted
        self._samples.append((at, counted))
        while len(self._samples) > 2 and self._samples[1][0] < at - _LATELY:
            self._samples.popleft()
        first = self._samples[0][1]
        self._speeds = (
            _speed(counted.prompt - first.prompt, counted.prompt_s - first.prompt_s)
            or self._speeds[0],
            _speed(counted.predicted - first.predicted, counted.predicted_s - first.predicted_s)
            or self._speeds[1],
        )


def _speed(tokens: float, seconds: float) -> float | None:
    return round(tokens / seconds, 1) if tokens > 0 and seconds > 0 else None
