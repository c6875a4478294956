"""Sizes and values in force: buffers, caches, saved state, what the engine runs with."""

from __future__ import annotations

from arriero.base.words import Component, Kind, Phase, Role
from arriero.logs.grammar import Event, To
from arriero.logs.lines import Line
from arriero.logs.model import Buffer
from arriero.logs.story.cause import bytes_of_mib
from arriero.logs.story.process import Process
from arriero.logs.story.start import KEEP, Start


def size(process: Process, event: Event, line: Line) -> None:
    """A buffer and its size."""
    start, component = process.start, event.rule.component or Component.COMPUTE
    taken = bytes_of_mib(event.facts["mib"])
    if taken == 0:
        return
    start.load()
    device = event.facts.get("buf", "CPU")
    if start.probing:
        _measured(start, component, device, taken)
        return  # a dry run's buffers are not real
    process.devices.add(device)
    start.seen.add(component)
    start.progress(line)
    if start.phase is Phase.LOAD and component in (Component.OUTPUT, Component.KV, Component.RS):
        start.phase = Phase.CONTEXT
    role = Role.MMPROJ if _is_of_projector(event) else start.role
    if component is Component.COMPUTE:
        # a context may reserve again: its last figure holds
        same = (component, device, role)
        start.buffers = [b for b in start.buffers if (b.component, b.device, b.role) != same]
    if len(start.buffers) >= KEEP:
        start.capped = True
        return
    start.buffers.append(
        Buffer(component=component, device=device, bytes=taken, line=line.number, role=role)
    )


def _is_of_projector(event: Event) -> bool:
    named = "compute_meta" in event.facts.get("function", "")
    return named or event.rule.component is Component.MMPROJ


def total(process: Process, event: Event, line: Line) -> None:
    """A cache's size over all devices."""
    start, component = process.start, event.rule.component or Component.COMPUTE
    taken = bytes_of_mib(event.facts["mib"])
    start.load()
    if start.role is Role.MAIN:
        several = start.totals.get(component, 0) if component is Component.KV else 0
        start.totals[component] = several + taken
    if int(event.facts.get("planes", 0)):
        start.note("rs_planes", line)
    if start.probing:
        _measured(start, component, None, taken)
        return
    start.seen.add(component)
    start.whole.add(component)
    start.progress(line)


def _measured(start: Start, component: Component, device: str | None, taken: int) -> None:
    if start.role is Role.MAIN and len(start.measured) < KEEP:
        start.measured.append((component, device, taken))


def value(process: Process, event: Event, line: Line) -> None:
    """A value in force."""
    start, rule = process.start, event.rule
    if "recurrent" in event.facts:
        start.recurrent = start.recurrent or int(event.facts["recurrent"]) > 0
        return
    if start.probing:
        return
    if rule.to is To.SLOTS:
        start.role = Role.MAIN
        start.progress(line)
    elif start.phase in (None, Phase.LOAD) and rule.phase is not None:
        start.phase = rule.phase
    if start.role is Role.MAIN:
        start.values.update(event.facts)


def state(process: Process, event: Event, line: Line) -> None:
    """Saved state in host memory and its size."""
    start, facts = process.start, event.facts
    start.serve()
    start.progress(line)
    taken = bytes_of_mib(facts.get("mib", "0"))
    if event.rule.to is To.SAVING:
        start.saving_line = line.number
    if "count" in facts:
        start.checkpoints = max(start.checkpoints, taken * int(facts["count"]))
        return
    start.saved = max(start.saved, taken)
    if 0 < bytes_of_mib(facts.get("limit", "0")) < taken:
        grown = next((c for c in start.causes if c.kind is Kind.STATE_GROWTH), None)
        if grown is None:
            grown = start.add(event, line, Kind.STATE_GROWTH)
            grown.fatal = False
        if grown.size is None or taken > grown.size:
            grown.size = taken
            grown.name(line)
