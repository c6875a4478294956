"""Phrases: how sizes, times, engines and parts of memory are named everywhere in a report."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from typing import Final

from arriero.base.sizes import KIB, MIB, human
from arriero.base.words import Component, Cost, LimitKind, Phase
from arriero.logs.model import EngineTag, Notice
from arriero.logs.notices import NOTICES
from arriero.record import (
    Baseline,
    EngineRecord,
    KnownFailure,
    LimitRecord,
    ModelRecord,
    Plan,
    Remedy,
)
from arriero.report.view.text import printable

SHORT: Final = {
    Component.WEIGHTS: "weights",
    Component.KV: "KV",
    Component.RS: "RS",
    Component.COMPUTE: "compute",
    Component.GRAPH: "graph",
    Component.OUTPUT: "output",
    Component.PROMPT_CACHE: "prompt cache",
    Component.CHECKPOINTS: "checkpoints",
    Component.MMPROJ: "mmproj",
    Component.DRAFT: "draft",
    Component.POOL: "pool",
}
LONG: Final = {
    Component.WEIGHTS: "model weights",
    Component.KV: "KV cache",
    Component.RS: "recurrent state (RS)",
    Component.COMPUTE: "compute buffer",
    Component.GRAPH: "graph metadata (host memory)",
    Component.OUTPUT: "output buffer",
    Component.PROMPT_CACHE: "prompt cache (host memory)",
    Component.CHECKPOINTS: "context checkpoints (host memory)",
    Component.MMPROJ: "multimodal projector (mmproj)",
    Component.DRAFT: "draft model",
    Component.POOL: "the backend's own pool",
}
DURING: Final = {
    Phase.ARGUMENTS: "while reading the options",
    Phase.FIT: "in the fit probe",
    Phase.LOAD: "while loading the model",
    Phase.CONTEXT: "while creating the context",
    Phase.WARMUP: "while warming up",
    Phase.SERVING: "while serving",
    Phase.SHUTDOWN: "while shutting down",
}
LIMIT_KINDS: Final = {
    LimitKind.ADDRESS_SPACE: "address space",
    LimitKind.CGROUP: "memory cgroup",
}
PER: Final = {
    "slot": "slot",
    "token": "token of context",
    "ubatch": "row of -ub",
    "request": "request",
}
LEFT_OUT: Final = "Names, paths and texts are left out: words in capitals and … stand for them."
"""Said in every report, since each is made for others to read."""
STEADY: Final = 64 * KIB
"""Growth per request below this is what a fit over a few page-sized samples leaves, not a leak."""
PLANNED: Final = {**SHORT, Component.POOL: "backend pool"}


def size(value: int) -> str:
    """Bytes for a sentence: ``3.5 GiB``, ``62.81 MiB``, ``268 MiB``."""
    number, _, unit = human(value).partition(" ")
    return f"{number.rstrip('0').rstrip('.') if '.' in number else number} {unit}"


def duration(seconds: float) -> str:
    """Seconds as people say them: ``48 s``, ``6 min 12 s``, ``1 h 05 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if whole < 10 and whole != seconds else f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def count(number: int, one: str, many: str = "") -> str:
    """``1 launch``, ``3 launches``."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def listed(items: Sequence[str], last: str = "and") -> str:
    """``a, b and c``."""
    return f"{', '.join(items[:-1])} {last} {items[-1]}" if len(items) > 1 else "".join(items)


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def limit(record: LimitRecord) -> str:
    return f"limit {size(record.bytes)} {LIMIT_KINDS[record.kind]}"


def engine(record: EngineRecord | EngineTag) -> str:
    """An engine in one phrase."""
    if record.build is not None:
        return f"b{record.build}"
    if record.commit:
        return f"build unknown, commit {printable(record.commit)}"
    return printable(record.version) if record.version else "engine of unknown build"


def setting(baseline: Baseline) -> tuple[str, ...]:
    """Engine, devices, model and limit, one phrase each."""
    devices = [printable(device.name) for device in baseline.devices if device.name != "CPU"]
    return (
        engine(baseline.engine),
        ", ".join(devices) if devices else "CPU",
        _model(baseline.model),
        limit(baseline.limit) if baseline.limit else "no limit set",
    )


def planned(doc: Plan) -> tuple[str, ...]:
    """Model and engine of a plan, one phrase each."""
    build = "newest rules" if doc.build is None else f"b{doc.build}"
    asked = f"{engine(doc.engine)} asked" if doc.engine else f"{build}, no engine asked"
    name = printable(re.split(r"[/\\]", doc.model.path)[-1])
    return (
        *([name] if name else []),
        _model(doc.model),
        *([] if doc.model.file_bytes is None else [size(doc.model.file_bytes)]),
        asked,
    )


def _model(model: ModelRecord | None) -> str:
    if model is None:
        return "model unknown"
    if model.problem:
        return f"model: {printable(model.problem)}"
    parts = [printable(model.arch or "architecture unknown")]
    if model.n_layer is not None:
        parts.append(count(model.n_layer, "layer"))
    if model.n_recurrent_layer:
        parts.append(f"{model.n_recurrent_layer} recurrent")
    return ", ".join(parts)


def growth(value: int | None) -> str:
    """Growth per request in words; unknown stays unknown."""
    if value is None:
        return "growth unknown"
    return f"grows {size(value)} a request" if value >= STEADY else "no steady growth"


def lasting(headroom: int | None, grown: int | None) -> str:
    """What is left at the peak, and whether it gets less."""
    left = "headroom unknown" if headroom is None else f"{size(headroom)} left at the peak"
    return f"{left} · {growth(grown)}"


def signal_name(exit_status: int | None) -> str:
    """``SIGABRT`` for -6; empty when the engine was not ended by a signal."""
    if exit_status is None or exit_status >= 0:
        return ""
    try:
        return signal.Signals(-exit_status).name
    except ValueError:
        return f"signal {-exit_status}"


def notice(item: Notice) -> str:
    """What a notice means; the log's own text where the id is not known."""
    text = NOTICES.get(item.id) or printable(item.text).strip()
    text = text.rstrip(".") + (f", {count(item.count, 'time')}" if item.count else "")
    return f"{text} (line {item.line})." if item.line else f"{text}."


def known(item: KnownFailure) -> str:
    """A gotcha that a log shows: its id, what goes wrong, what to do about it."""
    maybe = "" if item.applies == "yes" else "maybe "
    first = " ".join(item.workaround.split("\n\n")[0].split())
    return printable(f"{maybe}{item.id}: {item.title} (line {item.line}). {first}")


def remedy(item: Remedy) -> str:
    """A change, what it costs and why it helps."""
    cost = "costs nothing" if item.cost is Cost.FREE else f"costs {item.cost.value}"
    return printable(f"{item.change} ({cost}): {item.why}")


def flag_value(flag: str, value: object) -> str:
    """``-cram 0``; a switch is just the flag, a removed one says so, a variable keeps its ``=``."""
    if value is None or value is False:
        return f"no {flag}"
    if value is True:
        return flag
    return f"{flag} {value}" if flag.startswith("-") else f"{flag}={value}"


def left(size: int) -> str:
    """Room in whole MiB, never rounded up."""
    return f"{size // MIB} MiB"


def excess(size: int) -> str:
    """What is too much in whole MiB, never rounded down."""
    return f"{-(-size // MIB)} MiB"
