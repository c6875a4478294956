"""What earlier runs took, as corrections of what a plan can only bound.

Three rules. A run of the same model, engine, devices and settings took what it took: its figure
replaces the bound, whether higher or lower. Of any other run only what it took too much counts, in
proportion: of this model with other settings, and of models of the same architecture on the same
build and kind of device. What is exact or measured stays as it is; where a run disagrees with it, a
note says so.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from itertools import groupby
from typing import Final

import msgspec

from arriero.base.buffers import HOST
from arriero.base.words import Component, Method, Role, TrialOutcome
from arriero.engine import Engine
from arriero.gguf import Header, Model
from arriero.gguf.reader import LazyArray
from arriero.launch.context import context
from arriero.launch.launch import Launch
from arriero.machine import Pool
from arriero.memory.placement import chosen_devices, layer_devices
from arriero.record import (
    EngineRecord,
    Plan,
    PlanBuffer,
    PlanNote,
    Run,
    RunBuffer,
    RunSettings,
    Trial,
)

_LINE: Final = 5243
"""Half of the last digit of a size line (0.01 MiB), in bytes."""
_KNOWN: Final = (Method.EXACT, Method.MEASURED)
_CONTEXT: Final = frozenset({Component.KV, Component.RS, Component.COMPUTE, Component.OUTPUT})
_SHOWN: Final = _CONTEXT | {Component.WEIGHTS, Component.DRAFT}
"""Components that size lines name."""
_REFUSED_WHOLE: Final = frozenset({Component.RS, Component.COMPUTE, Component.OUTPUT})
"""Components that are one buffer on a device, where KV can be several."""
_USUAL: Final = {
    "swa_full": False,
    "offload_kqv": True,
    "op_offload": True,
    "embeddings": False,
    "split_mode": "layer",
    "main_gpu": 0,
    "use_extra_bufts": True,
    "no_host": False,
    "load_mtp": False,
}
Place = tuple[Component, str]


@dataclass(frozen=True)
class Calibration:
    """What a real run took of one component on one device, in bytes.

    ``same`` is true for a run of this model by this engine on these devices. ``planned`` is what
    was said of it without asking the engine, ``asked`` what its dry run said.
    """

    component: Component
    device: str
    taken: int
    planned: int | None
    same: bool
    settings: RunSettings
    rounding: int = 0
    method: Method | None = None
    """How ``planned`` was known."""
    asked: int | None = None
    run: str = ""

    def is_of(self, buffer: PlanBuffer) -> bool:
        """Whether it is the same component of the same on the same device."""
        mine = self.same and self.component is buffer.component
        return mine and self.device == buffer.device

    def excess(self, size: int) -> int:
        """What a line of ``size`` bytes lacks if it lacks as much, in proportion, as this run's."""
        if not self.planned or self.taken - self.rounding <= self.planned:
            return 0
        return -(-size * (self.taken - self.planned) // self.planned)


# --- what is the same ---------------------------------------------------------------------------


def fingerprint(header: Header) -> str:
    """What decides the sizes of a model, as a hash: the architecture's keys and the tensors.

    Names, texts and values of tensors are not in it: a fine-tune, a renamed file and a skeleton
    have the fingerprint of the model they come from.
    """
    arch = header.metadata.get("general.architecture")
    digest = hashlib.sha256()
    for key in sorted(header.metadata):
        if key in ("general.architecture", "tokenizer.ggml.tokens") or key.startswith(f"{arch}."):
            value = header.metadata[key]
            value = (value.type.name, value.count) if isinstance(value, LazyArray) else value
            digest.update(f"{key}={value!r}\n".encode())
    for tensor in header.tensors:
        digest.update(f"{tensor.name} {tensor.type} {tensor.shape}\n".encode())
    return digest.hexdigest()[:32]


def run_settings(about: Model, settings: Launch, pools: Sequence[Pool]) -> RunSettings:
    """What the buffers of a command depend on, in a form that can be compared.

    Args:
        settings: ``request.n_ctx`` 0 is the model's own.
        pools: What layers without ``-ts`` are spread by.

    Raises:
        UsageError: The command names a device that is not there.
    """
    request = settings.params
    made = context(
        request.n_ctx or about.n_ctx_train or 0, request.n_seq_max, unified=request.kv_unified
    )
    free = {name: p.free or p.total or 0 for p in pools for name in p.devices if name != HOST}
    devices = chosen_devices(request, list(free))
    split = request.tensor_split
    if not any(split):
        split = tuple(float(free[name]) for name in devices)
    layers = layer_devices(about.n_layer or 0, request.n_gpu_layers, devices, split)
    flags = [
        f"{name}={value}"
        for name, usual in _USUAL.items()
        if (value := getattr(request, name)) != usual
    ]
    flags += [] if settings.mmap else ["mmap=False"]
    flags += [f"speculation={kind}" for kind in settings.speculation]
    flags += _drafting(settings)
    flags += [f"{pattern}={buffer}" for pattern, buffer in settings.overrides]
    n_batch = min(made.n_ctx, request.n_batch)
    return RunSettings(
        n_ctx=made.n_ctx,
        n_ctx_seq=made.n_ctx_seq,
        n_seq_max=made.n_seq_max,
        kv_unified=made.unified,
        n_batch=n_batch,
        n_ubatch=min(n_batch, request.n_ubatch),
        n_rs_seq=request.n_rs_seq,
        n_outputs_max=request.n_outputs_max,
        flash_attn=request.flash_attn,
        type_k=request.type_k,
        type_v=request.type_v,
        layers=tuple(f"{name}*{len(list(run))}" for name, run in groupby(layers)),
        flags=tuple(flags),
    )


def _drafting(settings: Launch) -> Iterator[str]:
    """What of the context that drafts is not as the model's own; its file by a hash of its path."""
    if settings.draft_model is not None:
        path = settings.draft_model.encode(errors="replace")
        yield f"draft={hashlib.sha256(path).hexdigest()[:16]}"
    for field in fields(settings.draft) if settings.draft is not None else ():
        value, own = (getattr(r, field.name) for r in (settings.draft, settings.params))
        if field.name not in ("model", "n_ctx") and value != own:
            yield f"draft {field.name}={value}"


@lru_cache(maxsize=64)
def _kind(device: str) -> str:
    """``CUDA`` of ``CUDA1``; what is on the host has no number."""
    return device.rstrip("0123456789")


def _listed(device: str) -> str:
    """A worker's device as the engine lists it: its buffers carry the address as well."""
    return re.sub(r"\[.*\]\Z", "", device)


def _used(settings: RunSettings) -> set[str]:
    return {layers.rpartition("*")[0] for layers in settings.layers} - {"CPU"}


# --- from a run ---------------------------------------------------------------------------------


def run_buffers(trial: Trial, planned: Plan, asked: Plan | None = None) -> tuple[RunBuffer, ...]:
    """What a trial took beside what had been said of it.

    A start that failed shows what was refused and nothing else: the log of a process that dies can
    lack lines.

    Args:
        planned: Without asking the engine.
        asked: With its dry run, if it answered.
    """
    failed = trial.outcome is TrialOutcome.FAILED
    taken = _refused(trial) if failed else _taken(trial, planned)
    said, told = _said(planned), _said(asked) if asked is not None else {}
    return tuple(
        RunBuffer(
            component=component,
            device=device,
            taken=size,
            rounding=rounding,
            planned=said[place][0] if (place := (component, device)) in said else None,
            method=said[place][1] if place in said else None,
            asked=told[place][0] if place in told else None,
        )
        for (component, device), (size, rounding) in taken.items()
    )


def _taken(trial: Trial, planned: Plan) -> Mapping[Place, tuple[int, int]]:
    """Bytes by place and how far they can be off; 0 for what was planned and has no size line."""
    taken: dict[Place, tuple[int, int]] = {}
    for buffer in trial.buffers:
        if buffer.role is Role.MMPROJ or buffer.component not in _SHOWN:
            continue
        draft = buffer.role is Role.DRAFT
        place = (Component.DRAFT if draft else buffer.component, _listed(buffer.device))
        size, rounding = taken.get(place, (0, 0))
        taken[place] = (size + buffer.bytes, rounding + _LINE)
    seen = {component for component, _ in taken}
    if Component.COMPUTE in seen:
        seen |= _CONTEXT
    for buffer_ in planned.buffers:
        if buffer_.component in seen - {Component.DRAFT}:
            taken.setdefault((buffer_.component, buffer_.device), (0, _LINE))
    return taken


def _refused(trial: Trial) -> Mapping[Place, tuple[int, int]]:
    failure = trial.failure
    if failure is None or failure.component not in _REFUSED_WHOLE:
        return {}
    if failure.buffer_bytes is None or failure.device is None:
        return {}
    return {(failure.component, _listed(failure.device)): (failure.buffer_bytes, 0)}


def _said(plan: Plan) -> dict[Place, tuple[int | None, Method]]:
    said: dict[Place, tuple[int | None, Method]] = {}
    for buffer in plan.buffers:
        if buffer.component in _SHOWN:
            before, method = said.get((buffer.component, buffer.device), (0, buffer.method))
            size = None if None in (before, buffer.bytes) else (before or 0) + (buffer.bytes or 0)
            known = method if method not in _KNOWN else buffer.method
            said[buffer.component, buffer.device] = (size, known)
    return said


# --- to a plan ----------------------------------------------------------------------------------


def calibrations_of(
    runs: Iterable[Run],
    header: Header,
    *,
    engine: Engine | None,
    build: int | None,
    devices: Mapping[str, str],
) -> tuple[Calibration, ...]:
    """What runs have to say about plans of a model, newest first as they come.

    Args:
        engine: The one that is planned for; without one a run of the same ``build`` counts as one
            of the same engine.
        devices: Name → description, as the engine lists them.
    """
    model, arch = fingerprint(header), header.metadata.get("general.architecture")
    found: list[Calibration] = []
    for run in runs:
        if run.arch != arch or not _same_build(run.engine, engine, build):
            continue
        same = run.model == model and _same_engine(run.engine, engine) and _on(run, devices)
        found += (
            Calibration(
                component=buffer.component,
                device=buffer.device,
                taken=buffer.taken,
                planned=buffer.planned,
                same=same,
                settings=run.settings,
                rounding=buffer.rounding,
                method=buffer.method,
                asked=buffer.asked,
                run=run.id,
            )
            for buffer in run.buffers
            if buffer.taken is not None
        )
    return tuple(found)


def _same_build(ran: EngineRecord, engine: Engine | None, build: int | None) -> bool:
    if engine is None:
        return build is not None and ran.build == build
    if ran.build is not None or engine.build is not None:
        return ran.build == engine.build
    return (ran.commit, ran.version) == (engine.commit, engine.version)


def _same_engine(ran: EngineRecord, engine: Engine | None) -> bool:
    if engine is None:
        return True
    mine = (engine.commit, engine.version, engine.backends)
    return (ran.commit, ran.version, ran.backends) == mine


def _on(run: Run, devices: Mapping[str, str]) -> bool:
    """Whether the devices that the run used are those of that name now."""
    then = {device.name: device.description for device in run.devices}
    return all(then.get(name, "") == devices.get(name) for name in _used(run.settings))


def corrected(
    buffers: Sequence[PlanBuffer], runs: Sequence[Calibration], settings: RunSettings
) -> tuple[tuple[PlanBuffer, ...], tuple[PlanNote, ...]]:
    """The lines of a plan as runs correct them, and what there is to say about it."""
    lines = [calibrated(buffer, runs, settings) for buffer in buffers]
    lines += _unplanned(buffers, runs, settings)
    notes = [PlanNote(id="drift", text=text) for text in _drifts(buffers, runs, settings)]
    by = next((r.run for r in runs if r.same and r.settings == settings), "")
    taken = dict.fromkeys(b.component for b in lines if b.method is Method.CALIBRATED)
    if taken:
        text = f"{', '.join(taken)}: as measured in {by}, which had the same settings."
        notes.append(PlanNote(id="calibration", text=text))
    return tuple(lines), tuple(notes)


def calibrated(
    buffer: PlanBuffer, runs: Sequence[Calibration], settings: RunSettings
) -> PlanBuffer:
    """The line corrected by runs; one that is exact or measured stays as it is."""
    if buffer.method in _KNOWN:
        return buffer
    alike = [r.taken for r in runs if r.is_of(buffer) and r.settings == settings]
    if alike:
        return _as_taken(buffer, max(alike))
    if buffer.bytes is None:
        return buffer
    kind, size = _kind(buffer.device), buffer.bytes
    worst = max(
        (r for r in runs if r.component is buffer.component and _kind(r.device) == kind),
        key=lambda run: run.excess(size),
        default=None,
    )
    if worst is None or not (excess := worst.excess(size)):
        return buffer
    whose = "this model at other settings" if worst.same else "a similar model"
    reason = f"a run of {whose} took more than its plan"
    return msgspec.structs.replace(
        buffer,
        bytes=size + excess,
        residual=excess,
        reason="; ".join(filter(None, (buffer.reason, reason))),
    )


def _as_taken(buffer: PlanBuffer, taken: int) -> PlanBuffer:
    return msgspec.structs.replace(
        buffer,
        bytes=taken,
        method=Method.CALIBRATED,
        upper_bound=False,
        residual=None if buffer.bytes is None else taken - buffer.bytes,
        reason="",
    )


def _unplanned(
    buffers: Sequence[PlanBuffer], runs: Sequence[Calibration], settings: RunSettings
) -> Iterator[PlanBuffer]:
    """What a run of the same took where nothing is planned, of components that are not known."""
    known = {b.component for b in buffers if b.method in _KNOWN}
    places = {(b.component, b.device) for b in buffers}
    taken: dict[Place, int] = {}
    for run in runs:
        if run.same and run.settings == settings and run.taken and run.component not in known:
            place = (run.component, run.device)
            taken[place] = max(run.taken, taken.get(place, 0))
    for (component, device), size in taken.items():
        if (component, device) not in places:
            yield PlanBuffer(
                component=component, device=device, bytes=size, method=Method.CALIBRATED
            )


def _drifts(
    buffers: Sequence[PlanBuffer], runs: Sequence[Calibration], settings: RunSettings
) -> Iterator[str]:
    """Where a run of this model disagrees with what is exact or measured, its newest run each."""
    mine: dict[Place, list[Calibration]] = {}
    for run in runs:
        if run.same:
            mine.setdefault((run.component, run.device), []).append(run)
    for buffer in buffers:
        if buffer.method not in _KNOWN or buffer.bytes is None:
            continue
        for run in mine.get((buffer.component, buffer.device), ()):
            alike = run.settings == settings
            formula = run.planned if run.method in _KNOWN else None
            before = run.asked if buffer.method is Method.MEASURED else formula
            said = buffer.bytes if alike else before
            if said is not None and abs(run.taken - said) > run.rounding:
                at = "these settings" if alike else "other settings"
                yield (
                    f"{buffer.component} on {buffer.device}: at {at} {run.run} took {run.taken}"
                    f" bytes where {said} were expected"
                )
                break
