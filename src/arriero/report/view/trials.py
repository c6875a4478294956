"""The table of trials: which flags and components get a column, and what each trial tells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from arriero.base.words import Component, Evidence, Kind, TrialOutcome
from arriero.record import Boundary, Diagnosis, Trial
from arriero.report.view.failures import failure_short
from arriero.report.view.text import printable
from arriero.report.view.words import STEADY, count, flag_value, signal_name, size

_AXES: Final = ("-np", "-c", "-ub", "-b", "-ngl", "-ncmoe")


@dataclass(frozen=True, kw_only=True)
class Size:
    """Bytes of one component in one trial; ``refused`` when this is what could not be had."""

    bytes: int | None
    refused: bool = False


@dataclass(frozen=True, kw_only=True)
class Row:
    """One trial. ``weight`` says how much it tells: 0 carries the verdict, 4 tells least."""

    n: int
    axes: tuple[str, ...]
    change: str
    sizes: tuple[Size, ...]
    ready: str
    served: str
    remark: str
    weight: int
    trial: Trial = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Table:
    """Trials by row. ``axes`` are the varied flags with a column, ``components`` the sizes."""

    axes: tuple[str, ...]
    components: tuple[Component, ...]
    device: str | None
    rows: tuple[Row, ...]

    @property
    def unit(self) -> str:
        return f"MiB on {printable(self.device)}" if self.device else "MiB"


def table(doc: Diagnosis) -> Table:
    """All trials of a diagnosis, in the order in which they ran."""
    axes = _axes(doc)
    components, device = _columns(doc)
    common = common_env(doc)
    weights = _weights(doc)
    best = doc.recommendation.trial if doc.recommendation else None
    return Table(
        axes=axes,
        components=components,
        device=device,
        rows=tuple(
            Row(
                n=trial.n,
                axes=tuple(axis_value(flag, trial, doc) for flag in axes),
                change=_change(trial, axes, common),
                sizes=tuple(trial_size(trial, part, device) for part in components),
                ready="yes" if started(trial) else "no",
                served=served(trial),
                remark=remark(trial) or ("– ← run this" if trial.n == best else "–"),
                weight=weights[trial.n],
                trial=trial,
            )
            for trial in doc.trials
        ),
    )


def started(trial: Trial) -> bool:
    """Whether the server got ready, whatever came later."""
    return trial.ready_s is not None or trial.outcome is not TrialOutcome.FAILED


def served(trial: Trial) -> str:
    return f"{trial.requests.ok}/{trial.requests.sent}" if trial.requests.sent else "–"


def as_given(doc: Diagnosis) -> Trial | None:
    """The last valid trial that changed nothing."""
    same = [trial for trial in doc.trials if not trial.change and trial.valid]
    return same[-1] if same else None


def by_number(doc: Diagnosis, n: int | None) -> Trial | None:
    return next((trial for trial in doc.trials if trial.n == n), None)


def axis_value(flag: str, trial: Trial, doc: Diagnosis) -> str:
    """The value of a flag in a trial: as changed, else as given."""
    value = _value(flag, trial, doc)
    return "auto" if value is None else printable(str(value))


def given_value(flag: str, doc: Diagnosis) -> object:
    """The value of a flag in the command as given; None where nothing set it."""
    for trial in doc.trials:
        if flag in trial.change:
            return trial.change[flag][0]
    base = doc.baseline
    return base.given.get(flag, base.effective.get(flag))


def along(flag: str, edge: Boundary, doc: Diagnosis) -> list[tuple[int, Trial]]:
    """Valid trials along one variable, with its value in each.

    The other variables that have a boundary must stand where this boundary held them; what else
    was changed may differ.
    """
    held = {name: edge.held[name] for name in doc.boundary if name != flag and name in edge.held}
    found = []
    for trial in doc.trials:
        value = integer(_value(flag, trial, doc))
        seen = {name: _value(name, trial, doc) for name in held}
        stands = all(seen[name] is None or str(seen[name]) == str(held[name]) for name in held)
        if trial.valid and stands and value is not None:
            found.append((value, trial))
    return found


def _value(flag: str, trial: Trial, doc: Diagnosis) -> object:
    return trial.change[flag][1] if flag in trial.change else given_value(flag, doc)


def integer(value: object) -> int | None:
    """A flag's value as a whole number; None where it is none."""
    try:
        return int(str(value))
    except ValueError:
        return None


def common_env(doc: Diagnosis) -> dict[str, str]:
    """What was set in the engine's environment in every trial."""
    every = [trial.env for trial in doc.trials]
    return {
        name: value
        for name, value in (every[0] if every else {}).items()
        if all(env.get(name) == value for env in every)
    }


def component_bytes(trial: Trial, part: Component, device: str | None) -> int | None:
    """Bytes of the buffers of one component; null where none was printed."""
    sizes = [
        buffer.bytes
        for buffer in trial.buffers
        if buffer.component is part and device in (None, trial.memory_of(buffer.device))
    ]
    return sum(sizes) if sizes else None


def refused_bytes(trial: Trial) -> int | None:
    """Bytes of the whole buffer that could not be had, if the log says."""
    failure = trial.failure
    if failure is None or failure.kind not in (Kind.ALLOCATION, Kind.BUFFER_LIMIT):
        return None
    return failure.buffer_bytes or failure.bytes


def trial_size(trial: Trial, part: Component, device: str | None) -> Size:
    failure = trial.failure
    if failure and failure.component is part and device in (None, trial.memory_of(failure.device)):
        refused = refused_bytes(trial)
        if refused is not None:
            return Size(bytes=refused, refused=True)
    return Size(bytes=component_bytes(trial, part, device))


def _axes(doc: Diagnosis) -> tuple[str, ...]:
    """At most two: flags with a boundary first, and only where some trial changed them."""
    varied = {flag for trial in doc.trials for flag in trial.change}
    wanted = [flag for flag in _AXES if flag in varied]
    return tuple(sorted(wanted, key=lambda flag: flag not in doc.boundary)[:2])


def _change(trial: Trial, axes: tuple[str, ...], common: Mapping[str, str]) -> str:
    changed = [flag_value(flag, new) for flag, (_, new) in trial.change.items() if flag not in axes]
    changed += [f"{name}={value}" for name, value in trial.env.items() if common.get(name) != value]
    if changed:
        return printable(" ".join(changed))
    if not trial.change:
        return "as given"
    return "baseline" if trial.purpose.startswith("baseline") else ""


def _columns(doc: Diagnosis) -> tuple[tuple[Component, ...], str | None]:
    """Components that get a column, most telling first, and the device they are shown for.

    With several devices in play their sizes must not be added up: the device of the verdict is
    shown alone.
    """
    taken = [(b.component, t.memory_of(b.device)) for t in doc.trials for b in t.buffers]
    several = len({memory for _, memory in taken}) > 1
    device = doc.verdict.memory if doc.verdict and several else None
    suspect = doc.verdict.component if doc.verdict else None
    sloped = {slope.component for slope in doc.slopes}
    present = {part for part, memory in taken if device in (None, memory)}
    if suspect and any(refused_bytes(trial) is not None for trial in doc.trials):
        present.add(suspect)

    def constant(part: Component) -> bool:
        return len({component_bytes(trial, part, device) for trial in doc.trials} - {None}) < 2

    ranked = sorted(
        (part for part in Component if part in present),
        key=lambda part: (part is not suspect, part not in sloped, constant(part)),
    )
    return tuple(ranked), device


def _weights(doc: Diagnosis) -> dict[int, int]:
    weights = {trial.n: 3 if trial.valid else 4 for trial in doc.trials}
    given = as_given(doc)
    verdict = doc.verdict.trial if doc.verdict else None
    best = doc.recommendation.trial if doc.recommendation else None
    edges = [n for edge in doc.boundary.values() for n in edge.trials]
    small = [trial.n for trial in doc.trials if trial.purpose.startswith("baseline")]
    weights.update(dict.fromkeys(small, 2))
    weights.update(dict.fromkeys(edges, 1))
    weights.update(dict.fromkeys([n for n in (verdict, best, given and given.n) if n], 0))
    return weights


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
