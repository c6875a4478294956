"""The largest setting that still fits, in few questions to an engine, and the frontier of slots."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final

import msgspec

from arriero.base.buffers import HOST
from arriero.base.sizes import MIB
from arriero.base.words import Component
from arriero.command import Command
from arriero.launch import edits
from arriero.launch.caches import DEFAULT_CACHE_MIB, DEFAULT_CHECKPOINTS
from arriero.launch.context import PAD, context_step
from arriero.launch.slots import slots_of
from arriero.record import FrontierPoint, Plan, PlanPool

Replan = Callable[[Command], Plan]
_MOST_SLOTS: Final = 64
_LONGEST: Final = 1 << 24
"""Tokens of a context where the header does not say what the model was trained for."""
_ROUNDS: Final = 8
_CACHES: Final = {"-cram": Component.PROMPT_CACHE, "-ctxcp": Component.CHECKPOINTS}


class WhatIf:
    """Plans of one command with changes: quick ones by formulas, sure ones by the engine.

    The two differ in little but compute, and there by an amount that hardly moves with a setting:
    what they differed by at the last sure plan corrects the quick ones until the next.

    Args:
        quick: Plans by formulas alone.
        sure: Plans with a dry run; null where there is no engine, so that formulas decide.
    """

    def __init__(self, quick: Replan, sure: Replan | None = None) -> None:
        self.quick, self._sure = quick, sure
        self._beyond: dict[str, int] = {}
        """Pool → bytes that the engine takes beyond the formulas."""

    def plan(self, command: Command) -> Plan:
        """The best plan there is of a command."""
        found = (self._sure or self.quick)(command)
        if self._sure is not None and _answered(found):
            quick = {pool.name: pool.planned for pool in self.quick(command).pools}
            self._beyond = {p.name: p.planned - quick[p.name] for p in found.pools}
        return found

    def holds(self, command: Command) -> bool:
        """Whether nothing speaks against it: no pool lacks room, no engine refuses it.

        What is unknown (a backend's own pools) speaks against nothing; the margin is there for it.
        """
        found = self.plan(command)
        if any(note.id == "refused" for note in found.notes):
            return False
        if any(pool.is_short for pool in found.pools):
            return False
        return self._sure is None or _answered(found)

    def largest(
        self,
        values: Sequence[int],
        change: Callable[[int], Command],
        within: Collection[str] | None = None,
    ) -> int | None:
        """The last of ``values`` with which the command fits; null if it does with none.

        Args:
            values: In the order of the memory that they take.
            within: Pools to look at, where a change moves memory from one to another.
        """
        low, high, misled = -1, len(values), False
        for _ in range(_ROUNDS):
            if high - low <= 1:
                break
            # an engine that refuses what formulas let pass is not to be foretold: halve
            halve = (low + high) // 2
            at = halve if misled else self._guess(values, low, high, change, within)
            if self._fits(self.plan(change(values[at])), within):
                low = at
                if at + 1 >= high or not self._seems(change(values[at + 1]), within):
                    break
            else:
                high, misled = at, self._seems(change(values[at]), within)
        return values[low] if low >= 0 else None

    def _guess(
        self,
        values: Sequence[int],
        low: int,
        high: int,
        change: Callable[[int], Command],
        within: Collection[str] | None,
    ) -> int:
        """Between ``low``, which fits, and ``high``, which does not."""
        first, last = low + 1, high
        while first < last:
            middle = (first + last) // 2
            if self._seems(change(values[middle]), within):
                first = middle + 1
            else:
                last = middle
        return max(first - 1, low + 1)

    def _seems(self, command: Command, within: Collection[str] | None) -> bool:
        """By the corrected formulas."""
        return self._fits(self.quick(command), within, self._beyond)

    def _fits(
        self, plan: Plan, within: Collection[str] | None, beyond: dict[str, int] | None = None
    ) -> bool:
        if any(note.id == "refused" for note in plan.notes):
            return False
        if beyond is None and self._sure is not None and not _answered(plan):
            return False
        return not any(
            pool.usable
            and pool.headroom is not None
            and pool.headroom - (beyond or {}).get(pool.name, 0) < pool.margin
            for pool in plan.pools
            if within is None or pool.name in within
        )


def _answered(plan: Plan) -> bool:
    """Whether the engine gave its figures. What a dry run cannot make, a start cannot either."""
    return not any(note.id == "dry_run" for note in plan.notes)


def lacking(plan: Plan) -> tuple[PlanPool, ...]:
    """The pools without room for the most that is planned and their margin, the worst first."""
    found = [pool for pool in plan.pools if pool.is_short]
    return tuple(sorted(found, key=lambda pool: (pool.headroom or 0) - pool.margin))


def frontier(
    command: Command,
    what_if: WhatIf,
    *,
    kv_unified: bool,
    n_ctx_train: int | None,
    on_slots: Callable[[int], None] = lambda _: None,
) -> Iterator[FrontierPoint]:
    """The largest ``-c`` that fits with 1, 2, 4, … slots, up to the command's own or 64.

    Where the defaults of host caches leave no room for any context they are capped first, since
    that costs least.

    Args:
        kv_unified: Whether slots share one context, as the command has it.
        n_ctx_train: No slot gets a longer context than that.
        on_slots: Told the number of slots before each search.
    """
    for slots in _slot_counts(command):
        on_slots(slots)
        step = context_step(slots, unified=kv_unified)
        end = max((n_ctx_train or _LONGEST) * step // PAD, step)
        with_slots = edits.with_slots(command, slots, unified=kv_unified)
        values = range(step, end + 1, step)
        capped = _capped(with_slots.with_value("-c", str(step)), what_if)
        for flag, value in capped.items():
            with_slots = with_slots.with_value(flag, value)

        def change(tokens: int, base: Command = with_slots) -> Command:
            return base.with_value("-c", str(tokens))

        tokens = what_if.largest(values, change)
        words = tuple(word for pair in capped.items() for word in pair)
        point = _point(what_if, change, values, tokens, slots, kv_unified)
        yield msgspec.structs.replace(point, capped=words)


def _capped(smallest: Command, what_if: WhatIf) -> dict[str, str]:
    """Caps of host caches that the command leaves to their defaults; empty where they have room.

    They get half of what the smallest context leaves of the host, checkpoints half of that.
    """
    plan = what_if.plan(smallest)
    pool = next((one for one in lacking(plan) if HOST in one.devices), None)
    sizes = {
        flag: sum(b.bytes or 0 for b in plan.buffers if b.component is component)
        for flag, component in _CACHES.items()
        if smallest.flags.knows(flag) and not smallest.has(flag)
    }
    if pool is None or pool.headroom is None or not any(sizes.values()):
        return {}
    room = max(0, pool.headroom - pool.margin + sum(sizes.values())) // 2
    caps: dict[str, str] = {}
    if kept := sizes.get("-ctxcp"):
        count = min(DEFAULT_CHECKPOINTS, DEFAULT_CHECKPOINTS * (room // 2) // kept)
        caps["-ctxcp"] = str(count)
        room -= kept * count // DEFAULT_CHECKPOINTS
    if sizes.get("-cram"):
        caps["-cram"] = str(min(DEFAULT_CACHE_MIB, room // (64 * MIB) * 64))
    return caps


def _slot_counts(command: Command) -> list[int]:
    asked = slots_of(command)
    most = asked.count if asked.given else _MOST_SLOTS
    powers = [1 << exponent for exponent in range(most.bit_length()) if 1 << exponent < most]
    return [*powers, most]


def _point(
    what_if: WhatIf,
    change: Callable[[int], Command],
    values: range,
    tokens: int | None,
    slots: int,
    kv_unified: bool,
) -> FrontierPoint:
    limited_by = None
    if tokens is None:
        full = lacking(what_if.plan(change(values[0])))
        limited_by = full[0].name if full else None
    elif tokens < values[-1]:
        limited_by = _tightest(what_if, change(tokens), change(tokens + values.step))
    plan = what_if.plan(change(tokens if tokens is not None else values[0]))
    headroom = next((pool.headroom for pool in plan.pools if pool.name == limited_by), None)
    context = plan.context
    return FrontierPoint(
        n_seq_max=slots,
        kv_unified=kv_unified,
        n_ctx=None if tokens is None or context is None else context.n_ctx,
        n_ctx_seq=None if tokens is None or context is None else context.n_ctx_seq,
        limited_by=limited_by,
        headroom=headroom,
    )


def _tightest(what_if: WhatIf, fits: Command, too_long: Command) -> str | None:
    """The pool that the next longer context overflows: the one with least above its margin."""
    spare = {
        pool.name: pool.headroom - pool.margin
        for pool in what_if.plan(fits).pools
        if pool.headroom is not None and pool.usable
    }
    before = {pool.name: pool.planned for pool in what_if.quick(fits).pools}
    after = {pool.name: pool.planned for pool in what_if.quick(too_long).pools}
    growing = [name for name in spare if after[name] > before[name]] or list(spare)
    return min(growing, key=lambda name: spare[name], default=None)
