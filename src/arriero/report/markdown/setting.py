"""What was true before: engine, system, model, devices, memory."""

from __future__ import annotations

from arriero.record import Baseline, EngineRecord
from arriero.report.markdown.syntax import code, prose, shell
from arriero.report.view import words as say
from arriero.report.view.text import printable


def setting(baseline: Baseline) -> list[str]:
    model, engine = baseline.model, baseline.engine
    lines = [*engine_lines(engine), f"- System: {prose(printable(baseline.system))}"]
    if model is not None:
        size = "size unknown" if model.file_bytes is None else say.size(model.file_bytes)
        lines.append(
            f"- Model: {code(printable(model.path))} ({prose(printable(model.arch or 'unknown'))}, "
            f"{model.memory_class} memory, {size})"
        )
    for device in baseline.devices:
        total = "unknown" if device.total is None else say.size(device.total)
        free = "unknown" if device.free is None else say.size(device.free)
        lines.append(
            f"- Device {code(printable(device.name))}: {prose(printable(device.description))}, "
            f"{total}, {free} free"
        )
    for pool in baseline.pools:
        total = "unknown" if pool.total is None else say.size(pool.total)
        note = "" if pool.usable else f"; not used: {printable(pool.note)}"
        lines.append(
            f"- Pool {code(printable(pool.name))}: {total}, limited by "
            f"{prose(printable(pool.limited_by) + note)}"
        )
    for name, value in baseline.visibility.items():
        lines.append(f"- {code(printable(f'{name}={value}'))}")
    return ["### Setting", "\n".join(lines), "Command as given:", shell(baseline.argv, {})]


def engine_lines(engine: EngineRecord) -> list[str]:
    return [
        f"- Engine: {code(printable(engine.path))} (found by {prose(printable(engine.found_by))})",
        f"- Version: {code(printable(engine.version or 'unknown'))}; {prose(say.engine(engine))}",
    ]
