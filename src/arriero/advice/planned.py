"""What to change in a command that does not fit, before it is started: each change re-planned."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from arriero.advice.caches import HostCaches
from arriero.advice.changes import Change, caches_bounded, slots
from arriero.base.sizes import mib
from arriero.base.words import Component, Cost
from arriero.command import Command
from arriero.gguf import Header
from arriero.launch import caches, edits, launch_of
from arriero.launch.caches import DEFAULT_CACHE_MIB
from arriero.launch.context import context_step
from arriero.launch.edits import Settings
from arriero.memory.frontier import WhatIf, lacking
from arriero.record import Advice, Plan, PlanBuffer, PlanPool

_LEAST_UBATCH: Final = 32
_FEW_CHECKPOINTS: Final = 8
_CACHE_STEP_MIB: Final = 256
_MUCH: Final = 0.1
"""Share of the host's free memory above which growth of checkpoints is worth a word."""
_LITTLE: Final = 50
"""A change that saves less than this part of what is missing is not worth its line."""
_SHOWN_FITTING: Final = 6
_SHOWN_SHORT: Final = 3
_PLAIN_TYPES: Final = frozenset({"f16", "bf16", "f32"})


@dataclass(frozen=True)
class Counsel:
    """Advice, cheapest first, and what is missing even with all of it (empty if nothing is)."""

    advice: tuple[Advice, ...] = ()
    missing: str = ""


@dataclass(frozen=True)
class _Tried:
    """Changes that were planned together."""

    changes: tuple[Change, ...]
    command: Command
    plan: Plan
    holds: bool

    @property
    def cost(self) -> Cost:
        return max((change.cost for change in self.changes), key=lambda cost: cost.rank)


Solver = Callable[[Command], Change | None]
"""One kind of change at the mildest value with which the command fits, or else at its strongest;
null where there is nothing to change."""


def advise(command: Command, header: Header, what_if: WhatIf) -> Counsel:
    """Changes that make a command fit, each with what it costs and leaves.

    Single changes come first, then combinations in which each is needed. One is recommended: of
    the cheapest kind the one with the longest context and the fewest changes. What does not fit is
    listed as not enough alone, never recommended.
    """
    base = what_if.plan(command)
    full = lacking(base)
    if not full or any(note.id == "refused" for note in base.notes):
        return Counsel(_on_growth(command, what_if))
    kinds = _Kinds(command, header, base, what_if)
    singles = [
        _tried((change,), command, what_if)
        for solve in kinds.solvers()
        if (change := solve(command)) is not None
    ]
    useful = [tried for tried in singles if _worth(tried, base)]
    together = list(_combinations(command, kinds, useful, what_if))
    fitting = [tried for tried in (*useful, *together) if tried.holds]
    fitting.sort(key=_rank)
    others = [tried for tried in useful if not tried.holds]
    others.sort(key=lambda tried: -_saved(tried, base)[1])
    shown = [*fitting[:_SHOWN_FITTING], *others[:_SHOWN_SHORT]]
    missing = ""
    if not fitting:
        smallest = next(
            iter(together), min(useful, key=lambda tried: _lacks(tried.plan), default=None)
        )
        shown += together
        missing = _missing(smallest, base)
    shown.sort(key=lambda tried: (tried.cost.rank, len(tried.changes)))
    best = fitting[0] if fitting else None
    advice = tuple(_advice(tried, base, recommended=tried is best) for tried in shown)
    growth = _on_growth(best.command, what_if) if best is not None else ()
    return Counsel((*advice, *growth), missing)


def _rank(tried: _Tried) -> tuple[int, int, int]:
    tokens = tried.plan.context.n_ctx if tried.plan.context is not None else 0
    settings = sum(len(change.settings) for change in tried.changes)
    return (tried.cost.rank, -tokens, settings)


def _tried(changes: tuple[Change, ...], command: Command, what_if: WhatIf) -> _Tried:
    changed = _applied(changes, command)
    return _Tried(changes, changed, what_if.plan(changed), what_if.holds(changed))


def _applied(changes: tuple[Change, ...], command: Command) -> Command:
    for change in changes:
        command = change.apply(command)
    return command


def _saved(tried: _Tried, base: Plan) -> tuple[str, int]:
    """The lacking pool that the changes help most, and by how many bytes."""
    after = {pool.name: pool.planned for pool in tried.plan.pools}
    saved = [(pool.name, pool.planned - after[pool.name]) for pool in lacking(base)]
    return max(saved, key=lambda pair: pair[1])


def _lacks(plan: Plan) -> int:
    """Bytes that pools lack, all together."""
    return sum(pool.margin - (pool.headroom or 0) for pool in lacking(plan))


def _worth(tried: _Tried, base: Plan) -> bool:
    name, saved = _saved(tried, base)
    lacks = next(pool.margin - (pool.headroom or 0) for pool in base.pools if pool.name == name)
    return saved > 0 and (tried.holds or saved * _LITTLE >= lacks)


def _advice(tried: _Tried, base: Plan, *, recommended: bool) -> Advice:
    name, saved = _saved(tried, base)
    return Advice(
        change=" ".join(map(_spelled, tried.changes)),
        cost=tried.cost,
        saves=saved,
        argv=tried.command.safe_argv(),
        pool=name,
        headroom=next(pool.headroom for pool in tried.plan.pools if pool.name == name),
        fits=tried.plan.fits,
        recommended=recommended,
    )


def _spelled(change: Change) -> str:
    """As one would type it: ``-np 1``, ``-nkvo``, ``--no-repack``, ``without -dio``."""
    words = []
    for flag, value in change.settings.items():
        if value is None:
            words.append(f"without {flag}")
        elif value == "off" and flag in _NEGATIVE:
            words.append(_NEGATIVE[flag])
        elif value == "on" and flag in _SWITCHES:
            words.append(flag)
        else:
            words.append(f"{flag} {value}")
    return " ".join(words)


_NEGATIVE: Final = {"-kvo": "-nkvo", "-kvu": "-no-kvu", "--repack": "--no-repack"}
_SWITCHES: Final = frozenset({"--mmap", "-kvu"})


def _missing(smallest: _Tried | None, base: Plan) -> str:
    """What even the strongest changes together leave too large, in one line."""
    plan = smallest.plan if smallest is not None else base
    full = lacking(plan)
    if not full:
        return "found no change that makes it fit"
    pool = full[0]
    lacks = mib(pool.margin - (pool.headroom or 0), 0)
    what = " ".join(map(_spelled, smallest.changes)) if smallest is not None else "as it is"
    return (
        f"no change makes it fit: even the smallest ({what}) takes {mib(pool.planned, 0)} MiB of "
        f"{pool.name}, {lacks} MiB too much with its margin"
    )


# --- combinations -------------------------------------------------------------------------------


def _combinations(
    command: Command, kinds: _Kinds, useful: Sequence[_Tried], what_if: WhatIf
) -> Iterator[_Tried]:
    """One change with bounded caches; changes added up, cheapest first, until the command fits, if
    that is cheaper; fewer slots with a shorter context.

    If nothing fits there is one, with all changes at their strongest.
    """
    bounded = [
        _tried((*tried.changes, change), command, what_if)
        for tried in useful
        if not tried.holds and (change := kinds.caches(tried.command)) is not None
    ]
    yield from (both for both in bounded if both.holds)
    cheapest = min((t.cost.rank for t in (*useful, *bounded) if t.holds), default=len(Cost))
    last = _Tried((), command, what_if.plan(command), False)
    # what a device is relieved of can be too much for the host with its caches
    by: Solver = kinds.context
    for solve in (each for solver in kinds.solvers() for each in (solver, kinds.caches)):
        change = None if last.holds else solve(last.command)
        if change is None:
            continue
        if change.cost.rank >= cheapest:
            break
        kept = (c for c in last.changes if not c.settings.keys() & change.settings.keys())
        step = _tried((*kept, change), command, what_if)
        if _lacks(step.plan) < _lacks(last.plan):
            last, by = step, solve
    if last.holds:
        last = _pruned(last, by, command, what_if)
    if len(last.changes) > 1 and (last.holds or cheapest == len(Cost)):
        yield last
    for tried in useful:
        if tried.cost is Cost.CONCURRENCY and not tried.holds:
            change = kinds.context(tried.command)
            if change is not None:
                both = _tried((*tried.changes, change), command, what_if)
                yield from [both] if both.holds else []


def _pruned(tried: _Tried, solve: Solver, command: Command, what_if: WhatIf) -> _Tried:
    """Without the changes that it fits without, or nearly: the last one gives way by a tenth."""
    for change in sorted(tried.changes[:-1], key=lambda change: -change.cost.rank):
        fewer = tuple(kept for kept in tried.changes[:-1] if kept is not change)
        last = solve(_applied(fewer, command))
        if last is None or not _near(last, tried.changes[-1]):
            continue
        without = _tried((*fewer, last), command, what_if)
        tried = without if without.holds else tried
    return tried


def _near(change: Change, other: Change) -> bool:
    """Whether two changes set the same flags to nearly the same values."""
    if change.settings.keys() != other.settings.keys():
        return False
    return all(_close(change.settings[flag], other.settings[flag]) for flag in change.settings)


def _close(one: str | None, two: str | None) -> bool:
    if one is None or two is None or not (one.isdigit() and two.isdigit()):
        return one == two
    return abs(int(one) - int(two)) * 10 <= max(int(one), int(two))


# --- kinds of changes ---------------------------------------------------------------------------


class _Kinds:
    """The kinds of changes that can help one plan."""

    def __init__(self, command: Command, header: Header, base: Plan, what_if: WhatIf) -> None:
        self._header, self._base, self._what_if = header, base, what_if
        self._short = frozenset(pool.name for pool in lacking(base))
        self._device_short = any(
            device != "host" for pool in lacking(base) for device in pool.devices
        )
        self._flags = command.flags

    def solvers(self) -> Iterator[Solver]:
        """Cheapest first."""
        yield self.flash
        yield self.mapped
        yield self.caches
        yield self.ubatch
        yield self.repack
        if self._device_short:
            yield self.experts
            yield self.kv_to_host
            yield self.layers
        yield self.slots
        yield self.context
        yield self.cache_types

    # free

    def flash(self, command: Command) -> Change | None:
        if launch_of(command).params.flash_attn != "off":
            return None
        why = "the scores of the whole context are not kept in memory"
        return _change(Cost.FREE, why, {"-fa": "on"})

    def mapped(self, command: Command) -> Change | None:
        why = "the kernel can drop and reread pages of a mapped file, but not of a copy"
        settings = edits.mapped(command)
        return _change(Cost.FREE, why, settings) if settings else None

    # prompt reuse

    def caches(self, command: Command) -> Change | None:
        """Saved prompts and checkpoints within what the rest leaves of the host."""
        plan = self._what_if.plan(command)
        pool = _host(plan)
        if pool is None or pool.headroom is None or not pool.is_short:
            return None
        prompts, kept = (
            [b for b in plan.buffers if b.component is component]
            for component in (Component.PROMPT_CACHE, Component.CHECKPOINTS)
        )
        if not prompts and not kept:
            return None
        count = plan.context.n_seq_max if plan.context is not None else 1
        each = _size(kept) // max(1, caches.checkpoints(command) * count)
        limit = None if any(b.bytes is None for b in prompts) else _size(prompts)
        room = pool.headroom - pool.margin + _size(prompts) + _size(kept)
        if room <= 0:
            held = {"-cram": prompts, "-ctxcp": kept}
            off = {flag: "0" for flag, lines in held.items() if lines}
            return _change(Cost.PROMPT_REUSE, "", {**off})
        return caches_bounded(command, HostCaches(limit, _size(kept), each), room, count)

    # speed

    def ubatch(self, command: Command) -> Change | None:
        context = self._what_if.plan(command).context
        if context is None or not context.n_ubatch:
            return None
        halves = [context.n_ubatch >> power for power in (3, 2, 1)]
        return self._solved(command, Cost.SPEED, "-ub", [n for n in halves if n >= _LEAST_UBATCH])

    def repack(self, command: Command) -> Change | None:
        if not any(b.device == "CPU_REPACK" for b in self._what_if.plan(command).buffers):
            return None
        return self._known(Cost.SPEED, "no second copy of weights", {"--repack": "off"})

    def experts(self, command: Command) -> Change | None:
        """Experts of the first layers on the host."""
        arch = self._header.metadata.get("general.architecture")
        layers = self._base.model.n_layer
        if not self._header.metadata.get(f"{arch}.expert_count") or not layers:
            return None
        fewest = launch_of(command).expert_layers
        if fewest is None:
            return None
        return self._solved(
            command, Cost.SPEED, "-ncmoe", range(layers, fewest, -1), self._short - {"host"}
        )

    def kv_to_host(self, command: Command) -> Change | None:
        if not launch_of(command).params.offload_kqv:
            return None
        return self._known(Cost.SPEED, "attention is computed beside its cache", {"-kvo": "off"})

    def layers(self, command: Command) -> Change | None:
        layers = self._base.model.n_layer
        if not layers:
            return None
        given = launch_of(command).layers_given
        most = layers + 1 if given is None or given < 0 else min(given, layers + 1)
        return self._solved(command, Cost.SPEED, "-ngl", range(most), self._short - {"host"})

    # concurrency, context, quality

    def slots(self, command: Command) -> Change | None:
        context = self._what_if.plan(command).context
        if context is None or context.n_seq_max < 2:
            return None
        unified = context.kv_unified

        def fewer(count: int) -> Change:
            return slots(count, unified=unified, command=command)

        counts = range(1, context.n_seq_max)
        found = self._what_if.largest(counts, lambda n: fewer(n).apply(command))
        return fewer(found or 1)

    def context(self, command: Command) -> Change | None:
        context = self._what_if.plan(command).context
        if context is None:
            return None
        step = context_step(context.n_seq_max, unified=context.kv_unified)
        return self._solved(command, Cost.CONTEXT, "-c", range(step, context.n_ctx, step))

    def cache_types(self, command: Command) -> Change | None:
        """Needs flash attention: a quantised V cache without it is refused."""
        params = launch_of(command).params
        if not {params.type_k, params.type_v} <= _PLAIN_TYPES or params.flash_attn == "off":
            return None
        return self._known(Cost.QUALITY, "half of the KV cache", {"-ctk": "q8_0", "-ctv": "q8_0"})

    def _solved(
        self,
        command: Command,
        cost: Cost,
        flag: str,
        values: Sequence[int],
        within: frozenset[str] | None = None,
    ) -> Change | None:
        """The flag at the last of the values that fits, or at the first."""
        if not values or not self._flags.knows(flag):
            return None

        def change(value: int) -> Command:
            return command.with_value(flag, str(value))

        found = self._what_if.largest(values, change, within)
        return _change(cost, "", {flag: str(values[0] if found is None else found)})

    def _known(self, cost: Cost, why: str, settings: Settings) -> Change | None:
        """The change, if this engine has all its flags."""
        known = all(self._flags.knows(flag) for flag in settings)
        return _change(cost, why, settings) if known else None


def _change(cost: Cost, why: str, settings: Settings) -> Change:
    return Change(" ".join(settings), cost, why, settings)


def _host(plan: Plan) -> PlanPool | None:
    return next((pool for pool in plan.pools if "host" in (pool.name, *pool.devices)), None)


def _size(buffers: Sequence[PlanBuffer]) -> int:
    return sum(b.bytes or 0 for b in buffers)


# --- growth while serving -----------------------------------------------------------------------


def _on_growth(command: Command, what_if: WhatIf) -> tuple[Advice, ...]:
    """Bounds for what could take much of the host while serving, with whatever else is changed."""
    before = what_if.plan(command)
    held = _host(before)
    if held is None or not held.free:
        return ()
    kept = [b for b in before.buffers if b.component is Component.CHECKPOINTS]
    settings = {}
    if caches.checkpoints(command) > _FEW_CHECKPOINTS and _size(kept) > _MUCH * held.free:
        settings["-ctxcp"] = str(_FEW_CHECKPOINTS)
    if any(b.component is Component.PROMPT_CACHE and b.bytes is None for b in before.buffers):
        sizes = range(0, DEFAULT_CACHE_MIB + 1, _CACHE_STEP_MIB)
        most = what_if.largest(sizes, lambda mib: command.with_value("-cram", str(mib)))
        settings["-cram"] = str(most or 0)
    if not settings:
        return ()
    change = _change(Cost.PROMPT_REUSE, "", {**settings})
    tried = _tried((change,), command, what_if)
    if not tried.holds:
        return ()
    left = _host(tried.plan) or held
    return (
        Advice(
            change=_spelled(change),
            cost=change.cost,
            saves=max(0, held.planned - left.planned),
            argv=tried.command.safe_argv(),
            pool=left.name,
            headroom=left.headroom,
            fits=tried.plan.fits,
        ),
    )
