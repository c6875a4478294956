"""Phrases: how failures, sizes, times and engines are named everywhere in a report."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from typing import Final

from arriero.base.sizes import KIB, human
from arriero.base.words import Component, Cost, Evidence, Kind, LimitKind, Phase
from arriero.logs.model import Cpu, EngineTag, Failure, Notice
from arriero.record import (
    Baseline,
    EngineRecord,
    KnownFailure,
    LimitRecord,
    ModelRecord,
    Plan,
    Remedy,
    Trial,
)
from arriero.report._meanings import meaning
from arriero.report._text import printable

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


def what_failed(failure: Failure) -> str:
    """What failed, as a sentence without its full stop."""
    device = f" on {printable(failure.device)}" if failure.device else ""
    part = LONG[failure.component] if failure.component else ""
    during = f" {DURING[failure.phase]}" if failure.phase else ""
    match failure.kind:
        case Kind.ALLOCATION:
            unmapped = failure.component is Component.WEIGHTS and failure.bytes is None
            verb = "could not be mapped or allocated" if unmapped else "allocation refused"
            name = f"{part}: {verb}" if part else "a buffer of an unknown component was refused"
            return f"{name}{during}" if failure.bytes is not None else f"{name}{device}{during}"
        case Kind.BUFFER_LIMIT:
            return (
                f"{part or 'a buffer'}: above the largest single allocation{device}{during}; "
                "this is not lack of memory"
            )
        case Kind.RUNTIME_ALLOCATION:
            return f"memory ran out{device}{during}" + (f": {part}" if part else "")
        case Kind.CACHE_FULL:
            return meaning(failure.text) or f"the KV cache has no free cells left{during}"
        case Kind.STATE_GROWTH:
            return f"saved state grew beyond its limit{during}: {part or 'host memory'}"
        case Kind.REPROCESSING:
            return "prompts are read again in full: the prompt cache could not be used"
        case Kind.RPC:
            return f"an RPC worker was lost, unreachable or of another version{during}"
        case Kind.BACKEND:
            told = meaning(failure.text) or f"driver or kernel error{device}"
            return f"{told}{during}; it names no memory"
        case Kind.CONFIG:
            return "the engine refuses this combination of options"
        case Kind.MODEL:
            return meaning(failure.text) or "the model file cannot be loaded"
        case Kind.ENVIRONMENT if failure.cpu is not None:
            return f"the engine was compiled for another CPU: {_for_cpu(failure.cpu)}"
        case Kind.ENVIRONMENT:
            told = meaning(failure.text) or "a port, permission, library or limit of the machine"
            return f"{told}{during}"
        case Kind.KILLED:
            return (
                f"killed from outside{during}, without a message "
                "(SIGKILL, as the kernel's OOM killer does)"
            )
        case Kind.HANG:
            return f"alive, but no progress{during}"
        case Kind.CRASH:
            return meaning(failure.text) or f"crashed{during}; no cause is named"


def _for_cpu(cpu: Cpu) -> str:
    if cpu.lacks:
        return f"this one lacks {printable(listed(cpu.lacks))}"
    built = f" (compiled with {printable(', '.join(cpu.needs))})" if cpu.needs else ""
    return f"it met an instruction that this one does not have{built}"


def failure_short(kind: Kind, component: Component | None, text: str = "") -> str:
    """A failure in a table cell; ``text`` is its line."""
    if kind is Kind.CACHE_FULL and meaning(text):
        return "request too long"
    part = SHORT[component] if component else ""
    return {
        Kind.ALLOCATION: part or "allocation",
        Kind.BUFFER_LIMIT: f"{part} over buffer limit".strip(),
        Kind.RUNTIME_ALLOCATION: f"{part or 'memory'} ran out",
        Kind.CACHE_FULL: "KV cells used up",
        Kind.STATE_GROWTH: f"{part or 'state'} growth",
        Kind.CONFIG: "options refused",
        Kind.MODEL: "model file",
        Kind.RPC: "RPC worker",
    }.get(kind, kind.value)


def remark(trial: Trial) -> str:
    """The first failure of a trial, or what else is worth a table cell; empty for nothing."""
    if not trial.valid:
        return f"invalid: {printable(trial.why_invalid or 'reason unknown')}"
    failure, parts = trial.failure, []
    if failure is not None:
        parts.append(failure_short(failure.kind, failure.component, failure.text))
        if failure.evidence is Evidence.INFERRED:
            parts.append("inferred")
    elif trial.outcome.value == "failed":
        parts.append("cause unknown")
    elif trial.requests.failed:
        parts.append(f"{count(trial.requests.failed, 'request')} failed")
    ended = signal_name(trial.exit_status)
    if ended and not (failure and failure.kind is Kind.KILLED):
        parts.append(ended)
    if not parts and (trial.growth_per_request or 0) >= STEADY:
        parts.append(f"+{size(trial.growth_per_request or 0)}/request")
    return ", ".join(parts)


def notice(item: Notice) -> str:
    """What a notice means; the log's own text where the id is not known."""
    from arriero.logs.grammar import NOTICES  # late: its patterns take long to compile

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
