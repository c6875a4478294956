"""What was true before: engine, system, model, devices, memory."""

from __future__ import annotations

from arriero.record import Baseline, EngineRecord, ModelRecord
from arriero.report.html.markup import Markup, el
from arriero.report.html.parts import grid, shell
from arriero.report.view import words as say


def setting(baseline: Baseline) -> list[Markup]:
    rows = [
        *engine_rows(baseline.engine),
        ("system", baseline.system),
        *(model_rows(baseline.model) if baseline.model else []),
    ]
    for device in baseline.devices:
        total, free = (_known(device.total), _known(device.free))
        rows.append((f"device {device.name}", f"{device.description}, {total}, {free} free"))
    for pool in baseline.pools:
        note = "" if pool.usable else f"; not used: {pool.note}"
        text = f"{_known(pool.total)}, limited by {pool.limited_by}{note}"
        rows.append((f"pool {pool.name}", text))
    rows += [(name, value or "(empty)") for name, value in baseline.visibility.items()]
    return [
        grid("Setting", ("what", "value"), rows, set()),
        el("p", "The command as given:"),
        shell(baseline.argv, {}),
    ]


def engine_rows(engine: EngineRecord) -> list[tuple[str, str]]:
    return [
        ("engine", f"{engine.path} (found by {engine.found_by})"),
        ("version", f"{engine.version or 'unknown'}; {say.engine(engine)}"),
    ]


def model_rows(model: ModelRecord) -> list[tuple[str, str]]:
    text = f"{model.path} ({model.arch or 'unknown'}, {model.memory_class} memory, "
    return [("model", f"{text}{_known(model.file_bytes)})")]


def _known(size: int | None) -> str:
    return "size unknown" if size is None else say.size(size)
