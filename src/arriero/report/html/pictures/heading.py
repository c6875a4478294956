"""What stands above the picture of one trial."""

from __future__ import annotations

from arriero.base.words import TrialOutcome
from arriero.report.html.markup import Markup, el
from arriero.report.view import words as say
from arriero.report.view.trials import Row


def heading(row: Row) -> Markup:
    how = " ".join(filter(None, (*_axes_of(row), row.change)))
    ready = {TrialOutcome.SERVED: "served", TrialOutcome.READY: "ready only"}
    state = "invalid" if not row.trial.valid else ready.get(row.trial.outcome, "failed")
    return el(
        "p",
        el("b", f"Trial {row.n}"),
        f" {how} ",
        el("span", state, class_=f"state state-{state.split()[0]}"),
        class_="label",
    )


def _axes_of(row: Row) -> tuple[str, ...]:
    return tuple(
        say.flag_value(flag, new)
        for flag, (_, new) in row.trial.change.items()
        if say.flag_value(flag, new) not in row.change
    )
