"""Memory while an engine serves: how much is left, how fast it goes, and whether a restart helps.

An engine is restarted, in good time and after a drain, if what is left of a pool runs out **and**
the engine is what took it. Memory that another process takes does not come back by a restart, and
growth that ends by itself (a prompt cache up to its limit) is none to fear if its end is within the
pool.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from statistics import median
from typing import Final

from arriero.base.sizes import MIB, human
from arriero.base.words import LimitKind
from arriero.machine import Bound, Holder, holders, host_bounds, nvml
from arriero.machine.drm import amd_cards
from arriero.machine.host import ULIMIT
from arriero.process import Limit, MemoryUse

HOST: Final = "host"
WORTH: Final = 64 * MIB
"""What the engine must have grown by before a restart is worth it: less is noise."""
WINDOW: Final = 600.0
"""Seconds over which the trend is taken."""
AHEAD: Final = 120.0
"""Seconds before the end at which a restart begins: for the drain, and for what comes faster."""
_READINGS: Final = 60
"""Of one pool; with more, every second one is dropped."""
_ENOUGH: Final = 8
_LEAST_SPAN: Final = 20.0
"""Readings, and seconds between the first and the last of them, that make a trend."""
_DEVICE_SHARE: Final = 50
"""A device is filled on purpose: at most one fiftieth of it has to stay free."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One pool at one time, in bytes.

    ``engine`` is what the engine has of it; None where nobody says.
    """

    at: float
    free: int
    engine: int | None
    total: int | None = None


@dataclass(frozen=True, slots=True)
class Trend:
    """What a pool loses and the engine takes, in bytes a second."""

    lost: float
    taken: float


@dataclass(frozen=True, slots=True)
class Shortage:
    """Why the engine is to be restarted.

    ``at_once``: there is no time for a long drain.
    """

    pool: str
    free: int
    grown: int
    at_once: bool
    left_s: float | None = None

    def __str__(self) -> str:
        taken = f"the engine has taken {human(self.grown)} more since it was ready"
        if self.left_s is None:
            return f"{human(self.free)} are left of {self.pool}, and {taken}"
        return f"{self.pool} runs out in about {self.left_s:.0f} s, and {taken}"


@dataclass
class MemoryWatch:
    """The pools of one supervised engine, over all its starts. Reads no clock.

    Attributes:
        reserve: Bytes of host memory that must stay free (``--memory-reserve``). Where a fresh
            engine leaves less than twice that, half of what it leaves.
        growth: The most bytes that the engine may grow by in each pool as planned; a pool without
            an entry has no known end.
    """

    reserve: int
    growth: Mapping[str, int] = field(default_factory=dict)
    _series: dict[str, deque[Reading]] = field(default_factory=dict)
    _first: dict[str, Reading] = field(default_factory=dict)

    def begun(self) -> None:
        """Another start of the engine is ready: what it has now is its own, the rest is growth."""
        self._series.clear()
        self._first.clear()

    def take(self, readings: Mapping[str, Reading]) -> Shortage | None:
        """Add one reading of each pool; why the engine is to be restarted, if it is."""
        found = [why for name, one in readings.items() if (why := self._judge(name, one))]
        return min(found, key=lambda why: (not why.at_once, why.left_s or 0.0), default=None)

    def trend(self, pool: str) -> Trend | None:
        """How a pool moves; None until there is enough to tell."""
        series = tuple(self._series.get(pool, ()))
        if len(series) < _ENOUGH or series[-1].at - series[0].at < _LEAST_SPAN:
            return None
        # What has stopped lately has stopped, whatever it did before.
        lately = series[-max(_ENOUGH, len(series) // 3) :]
        lost = min(-slope([(one.at, one.free) for one in part]) for part in (series, lately))
        taken = slope([(one.at, one.engine) for one in lately if one.engine is not None])
        return Trend(lost, taken)

    def left(self, pool: str) -> float | None:
        """Seconds until the reserve is touched, if it goes on like this; None if it does not."""
        trend = self.trend(pool)
        if trend is None or trend.lost <= 0:
            return None
        last = self._series[pool][-1]
        return max(0.0, (last.free - self._reserve(last, pool)) / trend.lost)

    def _judge(self, pool: str, now: Reading) -> Shortage | None:
        self._add(pool, now)
        first = self._first.setdefault(pool, now).engine
        if now.engine is None or first is None:
            return None
        grown = now.engine - first
        if grown < WORTH:
            return None
        if now.free < self._reserve(now, pool):
            return Shortage(pool, now.free, grown, at_once=True)
        left, trend = self.left(pool), self.trend(pool)
        if left is None or trend is None or left > AHEAD or trend.taken < trend.lost / 2:
            return None
        if self._ends_in_time(pool, now, grown):
            return None
        return Shortage(pool, now.free, grown, at_once=False, left_s=left)

    def _ends_in_time(self, pool: str, now: Reading, grown: int) -> bool:
        """Whether this growth is planned and what is left of the plan leaves the reserve."""
        planned = self.growth.get(pool)
        if planned is None or grown > planned + max(WORTH, planned // 10):
            return False
        return now.free - max(0, planned - grown) > self._reserve(now, pool)

    def _reserve(self, now: Reading, pool: str) -> int:
        first = self._first.get(pool)
        reserve = self.reserve if first is None else min(self.reserve, first.free // 2)
        if pool in (HOST, ULIMIT) or now.total is None:
            return reserve
        return min(reserve, now.total // _DEVICE_SHARE)

    def _add(self, pool: str, now: Reading) -> None:
        series = self._series.setdefault(pool, deque())
        series.append(now)
        while series[0].at < now.at - WINDOW:
            series.popleft()
        if len(series) > _READINGS:
            kept = list(series)
            series.clear()
            series.extend([*kept[:-1:2], kept[-1]])


def slope(points: Sequence[tuple[float, float]]) -> float:
    """The median of the slopes between all pairs (Theil and Sen): one outlier changes nothing."""
    slopes = [(y1 - y0) / (x1 - x0) for (x0, y0), (x1, y1) in combinations(points, 2) if x1 > x0]
    return median(slopes) if slopes else 0.0


# --- reading --------------------------------------------------------------------------------------


def readings(
    at: float,
    pid: int,
    use: MemoryUse,
    limit: Limit | None = None,
    *,
    bounds: Callable[[], Iterator[Bound]] = host_bounds,
    held: Callable[[], Sequence[Holder]] = holders,
) -> dict[str, Reading]:
    """Every pool of an engine now. Some milliseconds with a card, else a fraction of one.

    Args:
        pid: The engine.
        use: What the process has (``Running.memory``).
        limit: The one that the engine was started with; ``bounds`` are Arriero's own, and the
            engine's too.
    """
    anonymous = use.anonymous if use.anonymous is not None else use.rss
    found: list[tuple[str, Reading]] = []
    for bound in bounds():
        if bound.name != ULIMIT:
            found.append((HOST, Reading(at, bound.free, anonymous, bound.total)))
        elif use.address_space is not None:
            found.append((ULIMIT, _own(at, bound.total, use.address_space)))
    if limit is not None:
        cgroup = limit.kind is LimitKind.CGROUP
        used = anonymous if cgroup else use.address_space
        if used is not None:
            found.append((HOST if cgroup else ULIMIT, _own(at, limit.bytes, used)))
    pools: dict[str, Reading] = {}
    for name, reading in sorted(found, key=lambda one: one[1].free):
        pools.setdefault(name, reading)
    return pools | _devices(at, pid, held)


def _own(at: float, total: int, used: int) -> Reading:
    """A limit of the engine alone."""
    return Reading(at, total - used, used, total)


def _devices(at: float, pid: int, held: Callable[[], Sequence[Holder]]) -> dict[str, Reading]:
    cards = {card.name: (card.vram_total, card.vram_used) for card in amd_cards()}
    driver = nvml()
    for card in driver.cards() if driver else ():
        if card.total is not None and card.used is not None:
            cards[f"nvml{card.index}"] = (card.total, card.used)
    if not cards:
        return {}
    own = {one.device: one.bytes for one in held() if one.pid == pid}
    return {
        name: Reading(at, total - used, own.get(name), total)
        for name, (total, used) in cards.items()
    }
