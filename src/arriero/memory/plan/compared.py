"""Formula and engine side by side: where they differ the engine wins and a note says so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from arriero.base.words import Component, Method
from arriero.memory.plan.context import Place
from arriero.memory.plan.lines import line
from arriero.memory.plan.notes import Notes
from arriero.record import PlanBuffer


def compared(
    formula: Mapping[Place, int],
    told: Mapping[Place, int] | None,
    notes: Notes,
    *,
    guessed: bool,
    doubtful: bool = False,
) -> Iterator[PlanBuffer]:
    """One line for each place that takes anything.

    Args:
        told: Null where no engine was asked.
        guessed: The formula guesses where layers go.
        doubtful: It is the most of several that may hold.
    """
    for place in dict.fromkeys([*formula, *(told or ())]):
        component, device = place
        computed = formula.get(place, 0)
        if told is None:
            method = Method.ESTIMATED if doubtful or guessed else Method.EXACT
            if computed:
                yield line(component, device, computed, method, upper_bound=doubtful)
            continue
        measured = told.get(place, 0)
        if measured != computed and not (guessed and _agree_in_all(component, formula, told)):
            note_drift(notes, component, device, computed, measured)
        if measured:
            method = Method.EXACT if measured == computed else Method.MEASURED
            yield line(component, device, measured, method)


def _agree_in_all(
    component: Component, formula: Mapping[Place, int], told: Mapping[Place, int]
) -> bool:
    """Whether formula and engine differ by nothing but where layers went."""
    sums = [sum(n for (c, _), n in side.items() if c is component) for side in (formula, told)]
    return sums[0] == sums[1]


def note_drift(
    notes: Notes, component: Component, device: str, computed: int, told: int | None
) -> None:
    text = f"{component} on {device}: the engine says {told} bytes, the formula says {computed}."
    notes.add("drift", text)
