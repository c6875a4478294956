"""What ``--fit`` makes of a command: less context, then layers, then experts on the host.

Restates ``common_fit_params`` (common/fit.cpp of builds 10435 and 11434). It changes only what the
command leaves open. Where it gives up, the engine says so, keeps a context that it has reduced
already, and loads the rest as asked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from arriero.memory.placement import CPU

EXPERTS: Final = r"\.ffn_(up|down|gate_up|gate)_(ch|)exps"
_ALL_EXPERTS: Final = rf"blk\.\d+{EXPERTS}"
_UP: Final = r"\.ffn_(gate|gate_up|down).*"
_GATE: Final = r"\.ffn_down.*"
_ATTENTION: Final = r"\.ffn_(gate|up|gate_up|down).*"


@dataclass(frozen=True)
class Placement:
    """Layers on devices, their split, and the tensors that go elsewhere, as flags would say it."""

    n_gpu_layers: int
    tensor_split: tuple[float, ...] = ()
    overrides: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Used:
    """Bytes by device (of the host alone if there is none), and the weights among them in all."""

    bytes: tuple[int, ...]
    weights: int = 0


Measure = Callable[[int, Placement | None], Used | None]
"""What a context takes as placed, or as the command places it; null where nobody can say."""


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What fit goes by.

    ``free`` is by device; the total of the host if there is none. ``targets`` are kept free.
    ``most`` is the context that the command or the model asks for; fit may reduce it to ``least``,
    in multiples of ``step``, unless both are the same. ``n_layer`` counts the trunk. ``fixed`` says
    why fit may not move weights; empty if it may.
    """

    devices: tuple[str, ...]
    free: tuple[int, ...]
    targets: tuple[int, ...]
    most: int
    least: int
    step: int
    n_layer: int
    has_experts: bool = False
    fixed: str = ""


@dataclass(frozen=True)
class Fitted:
    """The context of all slots, weights moved if any, and why fit gives up if it does."""

    n_ctx: int
    placement: Placement | None = None
    gave_up: str = ""


def fitted(setup: Setup, measure: Measure) -> Fitted | None:
    """What fit settles on; null where a measurement is missing."""
    try:
        return _Fit(setup, measure).result()
    except _UnmeasuredError:
        return None


class _UnmeasuredError(Exception):
    pass


@dataclass(frozen=True)
class _Share:
    """Layers of one device. Of the ``partial`` ones, the last, experts are elsewhere.

    The first of those lacks what ``cut`` names, and that is in buffer type ``to``.
    """

    layers: int = 0
    partial: int = 0
    cut: str = EXPERTS
    to: str = CPU

    @property
    def full(self) -> int:
        return self.layers - self.partial


Shares = tuple[_Share, ...]


@dataclass(frozen=True)
class _State:
    shares: Shares
    used: tuple[int, ...]
    dense: int
    """The first device with layers whose experts are on the host."""


class _Fit:
    def __init__(self, setup: Setup, measure: Measure) -> None:
        self._setup, self._ask = setup, measure
        self._n_ctx = setup.most
        self._devices = len(setup.devices)
        self._targets = [f - t for f, t in zip(setup.free, setup.targets, strict=True)]

    def result(self) -> Fitted:
        setup = self._setup
        full = self._measure(None)
        surplus = [target - n for target, n in zip(self._targets, full.bytes, strict=True)]
        if min(surplus) >= 0:
            return Fitted(self._n_ctx)
        if sum(surplus) < 0 and setup.most > setup.least and self._reduce(full):
            return Fitted(self._n_ctx)
        if not setup.devices:
            return Fitted(self._n_ctx, gave_up="a smaller context is not enough")
        if setup.fixed:
            return Fitted(self._n_ctx, gave_up=setup.fixed)
        return Fitted(self._n_ctx, self._placement(self._layers()))

    def _measure(self, placement: Placement | None) -> Used:
        used = self._ask(self._n_ctx, placement)
        if used is None or len(used.bytes) != len(self._setup.free):
            raise _UnmeasuredError
        return used

    # context

    def _reduce(self, full: Used) -> bool:
        """Interpolate between the least and the most context; whether that is all there is to do.

        Several devices are expected to waste a part of a layer each.
        """
        setup = self._setup
        aim = sum(self._targets)
        if self._devices > 1:
            layer = full.weights // max(1, setup.n_layer)
            aim -= (self._devices + 1) * layer // (6 if setup.has_experts else 2)
        self._n_ctx = setup.least
        least, most = sum(self._measure(None).bytes), sum(full.bytes)
        if aim <= least:
            return False
        tokens = setup.least + (setup.most - setup.least) * (aim - least) // (most - least)
        self._n_ctx = max(tokens - tokens % setup.step, setup.least)
        return self._devices <= 1

    # layers

    def _placement(self, shares: Shares) -> Placement:
        layers = sum(share.layers for share in shares)
        il = self._setup.n_layer + 1 - layers
        overrides: list[tuple[str, str]] = []
        for share in shares:
            il += share.full
            for n in range(share.partial):
                cut, to = (share.cut, share.to) if n == 0 else (EXPERTS, CPU)
                overrides.append((rf"blk\.{il + n}{cut}", to))
            il += share.partial
        split = tuple(float(share.layers) for share in shares) if self._devices > 1 else ()
        return Placement(layers, split, tuple(overrides))

    def _state(self, shares: Shares, dense: int = 0) -> _State:
        return _State(shares, self._measure(self._placement(shares)).bytes, dense)

    def _layers(self) -> Shares:
        """Whole layers from the last device to the first, without experts if there are any."""
        room = self._room_without_experts() if self._setup.has_experts else 0
        state = self._state((_Share(),) * self._devices)
        for at in reversed(range(self._devices)):
            state = self._fill(state, at)
        return self._with_experts(state).shares if room > 0 else state.shares

    def _room_without_experts(self) -> int:
        used = self._measure(Placement(-1, (), ((_ALL_EXPERTS, CPU),)))
        return sum(self._targets) - sum(used.bytes)

    def _fill(self, low: _State, at: int) -> _State:
        left = self._setup.n_layer + 1 - sum(share.layers for share in low.shares[at + 1 :])
        if left <= 0:
            return low

        def grown(state: _State, count: int) -> _State:
            share = state.shares[at]
            partial = share.partial
            if self._setup.has_experts:
                # the output layer is always whole
                partial += count - (at == self._devices - 1 and partial == 0)
            return self._state(
                _with(state.shares, at, layers=share.layers + count, partial=partial)
            )

        high = grown(low, left - low.shares[at].layers)
        return self._narrowed(low, high, at, grown, lambda state: state.shares[at].layers)

    def _narrowed(
        self,
        low: _State,
        high: _State,
        at: int,
        grown: Callable[[_State, int], _State],
        count: Callable[[_State], int],
    ) -> _State:
        """The most that a device holds, by false position as the engine does it."""
        target = self._targets[at]
        if high.used[at] <= target:
            return high
        if low.used[at] > target:
            return low  # the engine finds the same, one layer at a time
        while (delta := count(high) - count(low)) > 1:
            test = grown(low, _step(delta, target - low.used[at], high.used[at] - low.used[at]))
            low, high = (test, high) if test.used[at] <= target else (low, test)
        return low

    # experts

    def _with_experts(self, state: _State) -> _State:
        """Make layers whole again from the first device on, then one more in part."""
        dense = self._devices
        while dense > 0 and state.shares[dense - 1].layers > 0:
            dense -= 1
        state = replace(state, dense=dense)
        at = 0
        while at <= state.dense < self._devices:
            state = self._filled_up(state, at)
            state = self._one_more_in_part(state, at)
            at += 1
        return state

    def _filled_up(self, state: _State, at: int) -> _State:
        def made_whole(low: _State, count: int) -> _State:
            return self._made_whole(low, at, count)

        high = self._all_whole(state, at)
        return self._narrowed(state, high, at, made_whole, lambda one: one.shares[at].full)

    def _all_whole(self, state: _State, at: int) -> _State:
        shares = state.shares
        for donor in range(state.dense, self._devices):
            moved = shares[donor].layers - (donor == self._devices - 1)
            shares = _with(shares, at, layers=shares[at].layers + moved)
            shares = _with(shares, donor, layers=shares[donor].layers - moved, partial=0)
        return self._state(shares, self._devices - 1)

    def _made_whole(self, state: _State, at: int, count: int) -> _State:
        shares, dense = state.shares, state.dense
        while dense < self._devices:
            donor = shares[dense]
            moved = min(count, donor.partial)
            shares = _with(
                shares, dense, layers=donor.layers - moved, partial=donor.partial - moved
            )
            shares = _with(shares, at, layers=shares[at].layers + moved)
            count -= moved
            if shares[dense].partial > 0:
                break
            dense += 1
        return self._state(shares, dense)

    def _one_more_in_part(self, state: _State, at: int) -> _State:
        dense, last = state.dense, self._devices - 1
        if dense > last or state.shares[dense].partial == 0:
            return state
        if state.shares[dense].layers <= (0 if at < last else 1):
            return state
        donor = state.shares[dense]
        shares = _with(state.shares, dense, layers=donor.layers - 1, partial=donor.partial - 1)
        shares = _with(shares, at, layers=shares[at].layers + 1, partial=shares[at].partial + 1)
        dense += shares[dense].partial == 0
        to = self._setup.devices[at + 1] if at < last else CPU

        def with_part(cut: str) -> _State | None:
            test = self._state(_with(shares, at, cut=cut, to=to), dense)
            near = range(at, min(at + 2, self._devices))
            return test if all(test.used[i] < self._targets[i] for i in near) else None

        if up := with_part(_UP):
            return with_part(_GATE) or up
        return with_part(_ATTENTION) or state


def _step(delta: int, room: int, taken: int) -> int:
    """Layers to try next: integers as C++ divides them, a negative one being a large unsigned."""
    if taken == 0:
        return 1
    product = delta * room
    step = abs(product) // abs(taken) * (1 if (product < 0) == (taken < 0) else -1)
    return min(max(step % (1 << 32), 1), delta - 1)


def _with(shares: Shares, at: int, **changes: object) -> Shares:
    return (*shares[:at], replace(shares[at], **changes), *shares[at + 1 :])  # type: ignore[arg-type] # fields of _Share


def said_of_fit(setup: Setup, found: Fitted, *, context_given: bool) -> str:
    """What fit will do, for the user; empty if nothing."""
    parts = []
    if found.n_ctx < setup.most:
        parts.append(f"take a context of {found.n_ctx} tokens instead of {setup.most}")
    if found.placement is not None:
        parts += _moves(setup, found.placement)
    if found.gave_up:
        parts.append(f"give up ({found.gave_up}) and load the rest as asked")
    kept = " It does not lower -c, because you set it." if context_given else ""
    return f"--fit will {', '.join(parts)}.{kept}" if parts else ""


def _moves(setup: Setup, placed: Placement) -> list[str]:
    layers = setup.n_layer + 1
    parts = []
    if placed.n_gpu_layers < layers:
        parts.append(f"move {layers - placed.n_gpu_layers} of {layers} layers to the CPU")
    if placed.tensor_split and any(placed.tensor_split):
        shares = zip(placed.tensor_split, setup.devices, strict=True)
        parts.append("split " + ", ".join(f"{share:.0f} to {name}" for share, name in shares))
    on_host = sum(buffer == CPU for _, buffer in placed.overrides)
    if on_host:
        parts.append(f"keep experts of {on_host} layers on the CPU")
    return parts
