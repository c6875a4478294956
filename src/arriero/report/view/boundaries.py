"""Where each variable stops working, in words, and what each unit of it takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from arriero.base.words import Method, TrialOutcome
from arriero.record import Boundary, Diagnosis, Slope
from arriero.report.view import words as say
from arriero.report.view.failures import failure_short
from arriero.report.view.text import printable
from arriero.report.view.trials import along, given_value


@dataclass(frozen=True, kw_only=True)
class EdgeView:
    """One boundary: the main sentence, what doubt there is, and the conditions it holds under."""

    flag: str
    sentence: str
    given_that: str
    """What was held at another value than as given: the least that must stand by the sentence,
    for outputs without room for all of ``held``."""
    held: str
    doubts: tuple[str, ...]
    conditions: tuple[str, ...]
    boundary: Boundary = field(repr=False)


def edge_view(flag: str, edge: Boundary, doc: Diagnosis) -> EdgeView:
    kinds = _other_failures(flag, edge, doc)
    if edge.fails_with:
        kinds.insert(0, failure_short(edge.fails_with.kind, edge.fails_with.component))
    fails = "no failure seen" if edge.fails is None else f"fails from {edge.fails}"
    if kinds:
        fails += f" ({', '.join(kinds)})"
    if edge.served is not None and edge.served == edge.ready:
        works = [f"ready and served up to {edge.served}"]
    else:
        works = [
            f"{word} up to {value}" if value is not None else f"{word}: not shown"
            for word, value in (("served", edge.served), ("ready", edge.ready))
        ]
    doubts = [f"repeats disagree from {edge.band[0]} to {edge.band[1]}"] if edge.band else []
    if edge.note:
        doubts.append(printable(edge.note))
    conditions = [f"in steps of {edge.step}"] if edge.step > 1 else []
    other = {
        name: value
        for name, value in edge.held.items()
        if str(given_value(name, doc)) != str(value)
    }
    if edge.trials:
        numbers = [str(n) for n in edge.trials]
        conditions.append(f"trial{'s' * (len(numbers) > 1)} {', '.join(numbers)}")
    return EdgeView(
        flag=printable(flag),
        sentence=" · ".join([*works, fails]),
        given_that=f"with {_held(other)}" if other else "",
        held=f"held: {_held(edge.held)}" if edge.held else "",
        doubts=tuple(doubts),
        conditions=tuple(conditions),
        boundary=edge,
    )


def _held(values: Mapping[str, object]) -> str:
    return printable(" ".join(say.flag_value(name, value) for name, value in values.items()))


def _other_failures(flag: str, edge: Boundary, doc: Diagnosis) -> list[str]:
    """Other failures along this variable: the one as given is often not the one at the edge."""
    if not any(flag in trial.change for trial in doc.trials):
        return []
    named = edge.fails_with and (edge.fails_with.kind, edge.fails_with.component)
    smallest: dict[str, int] = {}
    for value, trial in along(flag, edge, doc):
        if trial.failure is None or not set(trial.change) <= {flag, *edge.held}:
            continue
        failure = trial.failure
        if trial.outcome is TrialOutcome.FAILED and (failure.kind, failure.component) != named:
            name = failure_short(failure.kind, failure.component, failure.text)
            smallest[name] = min(value, smallest.get(name, value))
    return [f"{name} from {value}" for name, value in smallest.items()]


def slope_texts(slopes: Iterable[Slope]) -> tuple[str, ...]:
    groups: dict[tuple[str, Method], list[str]] = {}
    for slope in slopes:
        note = f" ({printable(slope.note)})" if slope.note else ""
        text = f"{say.SHORT[slope.component]} {say.size(slope.bytes)}{note}"
        groups.setdefault((slope.per, slope.method), []).append(text)
    return tuple(
        f"per {say.PER[per]}, {method.value}: {', '.join(parts)}"
        for (per, method), parts in groups.items()
    )
