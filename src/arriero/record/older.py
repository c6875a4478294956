"""What records of before did not say yet, filled in by the rules of their time.

A document of today says all of it itself: these rules are for what earlier versions of Arriero
wrote, and stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch
from itertools import pairwise
from typing import Final, TypeVar, cast

import msgspec

from arriero.base.buffers import is_on_host, pool_of
from arriero.base.words import Component
from arriero.record.baseline import Baseline
from arriero.record.diagnosis import Diagnosis, Verdict
from arriero.record.plan import Plan, PlanBuffer, PlanContext, PlanPool
from arriero.record.trial import Trial
from arriero.record.verification import Verification

_T = TypeVar("_T")

_SHORT_NAMES: Final = {
    "--parallel": "-np",
    "--ctx-size": "-c",
    "--ubatch-size": "-ub",
    "--batch-size": "-b",
    "--gpu-layers": "-ngl",
    "--n-gpu-layers": "-ngl",
    "--n-cpu-moe": "-ncmoe",
    "--cache-ram": "-cram",
    "--ctx-checkpoints": "-ctxcp",
    "--kv-unified": "-kvu",
}
_GROWING: Final = frozenset({Component.PROMPT_CACHE, Component.CHECKPOINTS})
_SLOTS: Final = frozenset({"-np", "--parallel"})
_SLOTS_CHOSEN: Final = 4
_CHECKPOINTS: Final = frozenset({"-ctxcp", "--ctx-checkpoints", "--swa-checkpoints"})
_CHECKPOINTS_KEPT: Final = 32
_DRAFTING: Final = ("--spec-", "-md", "--model-draft")


def completed(document: _T) -> _T:
    """The document with what its version of Arriero left unsaid; one of today as it is."""
    return cast("_T", _completed(document))


@singledispatch
def _completed(document: object) -> object:
    return document


@_completed.register
def _diagnosis(doc: Diagnosis) -> Diagnosis:
    return msgspec.structs.replace(
        doc,
        baseline=_baseline(doc.baseline),
        trials=tuple(map(_trial, doc.trials)),
        verdict=_verdict(doc.verdict) if doc.verdict else None,
    )


@_completed.register
def _verification(doc: Verification) -> Verification:
    return msgspec.structs.replace(doc, trial=_trial(doc.trial)) if doc.trial else doc


@_completed.register
def _plan(doc: Plan) -> Plan:
    if any(one.pool for one in doc.buffers):
        return doc
    context = _context(doc.context, doc.argv) if doc.context else None
    return msgspec.structs.replace(
        doc,
        buffers=tuple(_buffer(one, doc.pools) for one in doc.buffers),
        pools=tuple(map(_pool, doc.pools)),
        context=context,
    )


def _trial(trial: Trial) -> Trial:
    failing = trial.failure.device if trial.failure else None
    devices = {buffer.device for buffer in trial.buffers} | {failing}
    named = sorted(device for device in devices if device and is_on_host(device))
    return msgspec.structs.replace(trial, on_host=trial.on_host or tuple(named))


def _baseline(baseline: Baseline) -> Baseline:
    set_ = baseline.effective
    given = {short: set_[long] for long, short in _SHORT_NAMES.items() if long in set_}
    return msgspec.structs.replace(baseline, given=baseline.given or given)


def _verdict(verdict: Verdict) -> Verdict:
    on_host = verdict.on_host or (verdict.device is not None and is_on_host(verdict.device))
    return msgspec.structs.replace(verdict, on_host=on_host)


def _buffer(buffer: PlanBuffer, pools: Sequence[PlanPool]) -> PlanBuffer:
    home = pool_of(buffer.device, pools)
    grows = buffer.grows or buffer.component in _GROWING
    return msgspec.structs.replace(buffer, pool=home.name if home else "", grows=grows)


def _pool(pool: PlanPool) -> PlanPool:
    """Plans of before said no more than that it does not fit."""
    sure = pool.surely or (pool.at_start if pool.fits is False else 0)
    return msgspec.structs.replace(pool, surely=sure)


def _context(context: PlanContext, argv: Sequence[str]) -> PlanContext:
    chosen = bool(argv) and context.n_seq_max == _SLOTS_CHOSEN and _SLOTS.isdisjoint(argv)
    return msgspec.structs.replace(
        context, slots_given=not (chosen and context.kv_unified), checkpoints=_checkpoints(argv)
    )


def _checkpoints(argv: Sequence[str]) -> int | None:
    """Of one slot; null where drafting adds to them or the command is not known."""
    if not argv or any(word.startswith(_DRAFTING) for word in argv):
        return None
    said = [value for flag, value in pairwise(argv) if flag in _CHECKPOINTS]
    if not said:
        return _CHECKPOINTS_KEPT
    return int(said[-1]) if said[-1].isdecimal() else None
