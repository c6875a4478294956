"""The engine, asked for one plan."""

from __future__ import annotations

import re
from typing import Final

from arriero.engine.oracle import DryRun, ProjectorRun, Unanswered
from arriero.launch.params import EngineParams, ProjectorParams
from arriero.memory.dry_runs import Answers
from arriero.memory.plan.notes import Notes

_NO_DEVICE: Final = re.compile(r"this engine has no (?:device|buffer type) (\S+)")
_UNKNOWN_TO_ENGINE: Final = "unknown model architecture"
"""What llama.cpp says of an architecture that a build lacks (src/llama-model.cpp)."""


class Asking:
    """Answers for one plan, and a note where there is none.

    Args:
        answers: Null where formulas alone decide.
    """

    def __init__(self, answers: Answers | None, notes: Notes) -> None:
        self._answers, self._notes = answers, notes
        self._mute = answers is None
        self.knows_model: bool | None = None
        """False once the engine said that it does not know the architecture."""

    def sizes(self, params: EngineParams) -> DryRun | None:
        """What the engine says; once it has no answer it is asked for sizes no more."""
        answer = self._sizes(params)
        if not isinstance(answer, Unanswered):
            return answer
        self._mute = True
        foreign = _NO_DEVICE.search(answer.reason)
        if _UNKNOWN_TO_ENGINE in answer.reason:
            self.knows_model = False
        elif foreign:
            name = foreign[1]
            why = "is a worker" if name.startswith("RPC") else "is not in this engine"
            self._notes.add(
                "dry_run", f"Sizes come from formulas, not from a dry run: {name} {why}."
            )
        else:
            text = f"The dry run gave no answer, so sizes come from formulas: {answer.reason}"
            self._notes.add("dry_run", text)
        return None

    def sizes_of_draft(self, params: EngineParams) -> DryRun | None:
        """The same of another model, without which the plan goes on."""
        answer = self._sizes(params)
        if not isinstance(answer, Unanswered):
            return answer
        self._notes.add("dry_run", f"The dry run gave no sizes of the draft model: {answer.reason}")
        return None

    def _sizes(self, params: EngineParams) -> DryRun | Unanswered | None:
        return None if self._mute or self._answers is None else self._answers.sizes(params)

    def projector(self, params: ProjectorParams) -> ProjectorRun | None:
        if self._answers is None:
            return None
        answer = self._answers.projector(params)
        if not isinstance(answer, Unanswered):
            return answer
        self._notes.add("dry_run", f"The dry run gave no sizes of the projector: {answer.reason}")
        return None
