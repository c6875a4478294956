"""What earlier runs took, as corrections of what a plan can only bound.

Three rules. A run of the same model, engine, devices and settings took what it took: its figure
replaces the bound, whether higher or lower. Of any other run only what it took too much counts, in
proportion: of this model with other settings, and of models of the same architecture on the same
build and kind of device. What is exact or measured stays as it is; where a run disagrees with it, a
note says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import msgspec

from arriero.base.words import Component, Method
from arriero.engine import Engine
from arriero.gguf import Header
from arriero.memory.taken import KNOWN, Place, fingerprint
from arriero.record import (
    EngineRecord,
    PlanBuffer,
    PlanNote,
    Run,
    RunSettings,
)


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


def _used(settings: RunSettings) -> set[str]:
    return {layers.rpartition("*")[0] for layers in settings.layers} - {"CPU"}


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
    if buffer.method in KNOWN:
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


@lru_cache(maxsize=64)
def _kind(device: str) -> str:
    """``CUDA`` of ``CUDA1``; what is on the host has no number."""
    return device.rstrip("0123456789")


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
    known = {b.component for b in buffers if b.method in KNOWN}
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
        if buffer.method not in KNOWN or buffer.bytes is None:
            continue
        for run in mine.get((buffer.component, buffer.device), ()):
            alike = run.settings == settings
            formula = run.planned if run.method in KNOWN else None
            before = run.asked if buffer.method is Method.MEASURED else formula
            said = buffer.bytes if alike else before
            if said is not None and abs(run.taken - said) > run.rounding:
                at = "these settings" if alike else "other settings"
                yield (
                    f"{buffer.component} on {buffer.device}: at {at} {run.run} took {run.taken}"
                    f" bytes where {said} were expected"
                )
                break
