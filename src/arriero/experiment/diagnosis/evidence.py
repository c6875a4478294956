"""What trials show: which value changed, what else moved, where a boundary lies, what failed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from arriero.base.buffers import is_on_host
from arriero.base.words import Component, Evidence, Kind, Method
from arriero.command import Command
from arriero.experiment.diagnosis.search import Search
from arriero.launch.context import asked_context, context
from arriero.launch.slots import slots_of
from arriero.logs.model import Failure
from arriero.record import Boundary, FailsWith, Plan, Trial, Verdict

_SHORT: Final = {
    "--parallel": "-np",
    "--ctx-size": "-c",
    "--cache-ram": "-cram",
    "--ctx-checkpoints": "-ctxcp",
    "--kv-unified": "-kvu",
    "--gpu-layers": "-ngl",
    "--n-gpu-layers": "-ngl",
    "--ubatch-size": "-ub",
    "--batch-size": "-b",
    "--cache-type-k": "-ctk",
    "--cache-type-v": "-ctv",
    "--flash-attn": "-fa",
    "--model": "-m",
    "--n-cpu-moe": "-ncmoe",
    "--override-tensor": "-ot",
    "--tensor-split": "-ts",
}


def difference(before: Command, after: Command) -> dict[str, tuple[Any, Any]]:
    """Flag → (in force before, in force after), for every flag that differs."""
    old, new = before.effective(), after.effective()
    return {
        _SHORT.get(flag, flag): (_plain(old.get(flag)), _plain(new.get(flag)))
        for flag in {**old, **new}
        if old.get(flag) != new.get(flag)
    }


def _plain(text: str | None) -> Any:
    try:
        return None if text is None else int(text)
    except ValueError:
        return text


def what_moved(trial: Trial, command: Command, layers_before: int | None) -> str | None:
    """An effective value that the command does not ask for; null if all is as pinned.

    Args:
        layers_before: Layers offloaded in earlier trials, where ``-ngl`` was not changed since.
    """
    seen = trial.effective
    slots, tokens = slots_of(command), asked_context(command).tokens
    if slots.given and seen.n_seq_max not in (None, slots.count):
        return f"-np {slots.count} became {seen.n_seq_max} slots"
    if tokens and seen.n_ctx is not None and seen.n_seq_max:
        expected = context(tokens, seen.n_seq_max, unified=bool(seen.kv_unified))
        if seen.n_ctx != expected.n_ctx:
            return f"-c {tokens} became {seen.n_ctx} tokens where {expected.n_ctx} were expected"
    if None not in (layers_before, seen.n_gpu_layers) and layers_before != seen.n_gpu_layers:
        return f"{layers_before} layers were offloaded before, now {seen.n_gpu_layers}"
    return None


def boundary_of(
    search: Search, seen: Sequence[tuple[int, Trial]], held: dict[str, Any]
) -> Boundary:
    """What the trials of one search showed, and nothing else."""
    broken = search.edge if search.fails is None else search.fails
    last = next((t for value, t in reversed(seen) if value == broken and t.failure), None)
    why = last.failure if last else None
    note = ""
    best, edge = search.shown, search.edge
    if best is not None and edge is not None and edge > best + search.step:
        note = f"between {best} and {edge} nothing was tried"
    return Boundary(
        served=best,
        ready=search.largest_ready,
        fails=search.fails,
        fails_with=FailsWith(kind=why.kind, component=why.component) if why else None,
        held=held,
        trials=tuple(trial.n for _, trial in seen),
        step=search.step,
        band=search.band,
        note=note,
    )


def with_component(failure: Failure, trials: Sequence[Trial], plan: Plan | None) -> Failure:
    """``failure`` with the component it was about, where its log lost the line that names it.

    Only by the same bytes: as another trial's log named them, or as the plan of this very command
    has them exactly. Two components of that size, or one that the log rules out, leave it null.
    """
    if not _lost_its_name(failure):
        return failure
    told = _named_in(failure, trials) | (_planned_as(failure, plan) if plan else set())
    if not told:
        return failure
    agreed = len(told) == 1 and failure.component in (None, *told)
    return msgspec.structs.replace(failure, component=next(iter(told)) if agreed else None)


def _lost_its_name(failure: Failure) -> bool:
    refused = failure.kind in (Kind.ALLOCATION, Kind.BUFFER_LIMIT)
    return refused and failure.evidence is Evidence.INFERRED and failure.bytes is not None


def _named_in(failure: Failure, trials: Sequence[Trial]) -> set[Component]:
    """Components that logs of other trials name with these bytes."""
    return {
        other.component
        for trial in trials
        for other in (trial.failure, *trial.secondary)
        if other is not None
        and other.component is not None
        and other.evidence is Evidence.NAMED
        and other.kind is failure.kind
        and other.bytes == failure.bytes
        and other.device == failure.device
    }


def _planned_as(failure: Failure, plan: Plan) -> set[Component]:
    """Components of which the plan has a buffer of exactly these bytes."""
    known = [
        buffer
        for buffer in plan.buffers
        if buffer.method in (Method.EXACT, Method.MEASURED) and not buffer.upper_bound
    ]
    sizes = {failure.bytes, failure.buffer_bytes} - {None}
    return {
        buffer.component
        for buffer in known
        if buffer.bytes in sizes and failure.device in (None, buffer.device)
    }


def verdict_of(failure: Failure, trial: int | None) -> Verdict:
    return Verdict(
        kind=failure.kind,
        component=failure.component,
        device=failure.device,
        bytes=failure.bytes,
        trial=trial,
        failure=failure,
        on_host=failure.device is not None and is_on_host(failure.device),
    )
