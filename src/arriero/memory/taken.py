"""What a run took, and what it depended on: what later plans are corrected by.

A model is the same by its fingerprint, settings by :func:`run_settings`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import groupby
from typing import Final

from arriero.base.buffers import HOST
from arriero.base.words import Component, Method, Role, TrialOutcome
from arriero.gguf import Header, Model
from arriero.gguf.header import LazyArray
from arriero.launch.context import context
from arriero.launch.launch import Launch
from arriero.machine import Pool
from arriero.memory.placement import chosen_devices, layer_devices
from arriero.record import (
    Plan,
    RunBuffer,
    RunSettings,
    Trial,
)

_LINE: Final = 5243
"""Half of the last digit of a size line (0.01 MiB), in bytes."""
KNOWN: Final = (Method.EXACT, Method.MEASURED)
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


def _listed(device: str) -> str:
    """A worker's device as the engine lists it: its buffers carry the address as well."""
    return re.sub(r"\[.*\]\Z", "", device)


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
            known = method if method not in KNOWN else buffer.method
            said[buffer.component, buffer.device] = (size, known)
    return said
