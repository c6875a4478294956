"""Bytes per slot, token and request, from what the trials printed and measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from arriero.base.sizes import MIB
from arriero.base.words import Component, Method
from arriero.experiment.diagnosis.printed import buffers_of
from arriero.record import Slope, Trial


def slopes(trials: Sequence[Trial]) -> tuple[Slope, ...]:
    """Everything that the trials let one say; nothing is assumed to be linear that was not seen."""
    good = [t for t in trials if t.valid and t.effective.n_seq_max]
    found = (_rs(good), _kv(good), _compute(good), _requests(trials))
    return tuple(slope for slope in found if slope is not None)


def _rs(good: Sequence[Trial]) -> Slope | None:
    for trial in sorted(good, key=lambda t: _refused_rs(t) is None):
        size = _refused_rs(trial) or buffers_of(trial, Component.RS)
        if size:
            return _slope(Component.RS, "slot", size / (trial.effective.n_seq_max or 1))
    return None


def _refused_rs(trial: Trial) -> int | None:
    """Bytes of the whole RS buffer from a refusal: to the byte, where size lines are rounded."""
    failure = trial.failure
    if failure is None or failure.component is not Component.RS:
        return None
    return failure.buffer_bytes


def _kv(good: Sequence[Trial]) -> Slope | None:
    for trial in reversed(good):
        size = buffers_of(trial, Component.KV)
        if size and trial.effective.n_ctx:
            return _slope(Component.KV, "token", size / trial.effective.n_ctx)
    return None


def _compute(good: Sequence[Trial]) -> Slope | None:
    """Between the fewest and the most slots seen with the same ``-c``."""
    sized = {
        t.effective.n_seq_max or 0: size
        for t in good
        if (size := buffers_of(t, Component.COMPUTE)) is not None and "-c" not in t.change
    }
    if len(sized) < 2:
        return None
    few, many = min(sized), max(sized)
    return _slope(Component.COMPUTE, "slot", (sized[many] - sized[few]) / (many - few))


def _requests(trials: Sequence[Trial]) -> Slope | None:
    """Growth while serving, above what every server's own bookkeeping takes."""
    grown = next((t for t in trials if t.growth_per_request), None)
    if grown is None or not grown.growth_per_request or grown.growth_per_request <= MIB:
        return None
    component = Component.CHECKPOINTS if grown.checkpoint_bytes else Component.PROMPT_CACHE
    return _slope(component, "request", grown.growth_per_request)


def _slope(component: Component, per: Any, value: float) -> Slope:
    return Slope(component=component, per=per, bytes=round(value), method=Method.MEASURED)
