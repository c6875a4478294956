"""What an engine leaves unanswered: what is said of it, and what is still asked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from arriero.engine.oracle import ProjectorRun, Unanswered
from arriero.launch.params import EngineParams, ProjectorParams
from arriero.memory.plan.asking import Asking
from arriero.memory.plan.notes import Notes

PARAMS = EngineParams(model=Path("m.gguf"), n_ctx=4096)
PROJECTOR = ProjectorParams(path=Path("p.gguf"))


class Unanswering:
    def __init__(self, reason: str) -> None:
        self.reason, self.asked = reason, 0

    def sizes(self, request: EngineParams) -> Unanswered:
        self.asked += 1
        return Unanswered(self.reason)

    def projector(self, request: ProjectorParams) -> ProjectorRun:
        return ProjectorRun((), flash_attn=False)

    def prepare(self, requests: Sequence[EngineParams]) -> bool:
        return False


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("this engine has no device RPC0", "RPC0 is a worker"),
        ("this engine has no buffer type CUDA1", "CUDA1 is not in this engine"),
        ("it ended with SIGABRT", "from formulas: it ended with SIGABRT"),
    ],
)
def test_an_engine_without_an_answer_is_asked_no_more(reason: str, told: str) -> None:
    notes, engine = Notes(), Unanswering(reason)
    asking = Asking(engine, notes)
    assert asking.sizes(PARAMS) is None
    assert asking.sizes(PARAMS) is None
    assert asking.sizes_of_draft(PARAMS) is None
    assert engine.asked == 1
    (note,) = notes
    assert note.id == "dry_run"
    assert told in note.text
    assert asking.knows_model is None
    assert asking.projector(PROJECTOR) is not None, "another question, another child"


def test_a_draft_without_an_answer_leaves_the_model_to_be_asked() -> None:
    notes, engine = Notes(), Unanswering("it ended")
    asking = Asking(engine, notes)
    assert asking.sizes_of_draft(PARAMS) is None
    assert asking.sizes_of_draft(PARAMS) is None
    assert asking.sizes(PARAMS) is None
    assert engine.asked == 3
    assert len([*notes]) == 2


def test_an_engine_can_say_that_it_does_not_know_the_model() -> None:
    notes = Notes()
    asking = Asking(Unanswering("unknown model architecture: 'new'"), notes)
    assert asking.sizes(PARAMS) is None
    assert asking.knows_model is False
    assert not [*notes]


def test_without_an_engine_nothing_is_said() -> None:
    notes = Notes()
    asking = Asking(None, notes)
    assert asking.sizes(PARAMS) is asking.sizes_of_draft(PARAMS) is None
    assert asking.projector(PROJECTOR) is None
    assert not [*notes]
