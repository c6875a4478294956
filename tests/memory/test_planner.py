"""Plans are made once for all commands that mean the same, and the engine is asked once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from arriero.base.errors import UsageError
from arriero.base.sizes import GIB
from arriero.command import Command, builtin_flags, parse_command
from arriero.engine.oracle import DryRun, ProjectorRun, Unanswered
from arriero.gguf import read_header
from arriero.launch.params import EngineParams, ProjectorParams
from arriero.machine import Pool
from arriero.machine.host import ULIMIT
from arriero.memory import DryRuns, Planner
from arriero.record import Plan

DATA = Path(__file__).parent / "data" / "archs"
LLAMA = DATA / "llama.gguf"
HOST = Pool("host", ("host",), 16 * GIB, 16 * GIB, "a test")


def command(options: str = "", **environ: str) -> Command:
    words = ["llama-server", "-m", str(LLAMA), *options.split()]
    return parse_command(words, builtin_flags(), environ)


def planner(pool: Pool = HOST, answers: Told | None = None) -> Planner:
    return Planner(read_header(LLAMA), [pool], model=LLAMA, build=10434, answers=answers)


class Told:
    """Answers as an engine gave them: of so many tokens, and of everything else why not."""

    def __init__(self, *tokens: int) -> None:
        self.tokens, self.asked, self.together = tokens, 0, 0

    def sizes(self, request: EngineParams) -> DryRun | Unanswered:
        self.asked += 1
        if request.n_ctx not in self.tokens:
            return Unanswered("it ended")
        return DryRun((), request.n_ctx, request.n_ctx, 512, 512, 1, 0, 1 << 20, ())

    def projector(self, request: ProjectorParams) -> ProjectorRun | Unanswered:
        return Unanswered("not asked for here")

    def prepare(self, requests: Sequence[EngineParams]) -> bool:
        self.together = len(requests)
        return all(request.n_ctx in self.tokens for request in requests)


def notes(plan: Plan | None) -> list[str]:
    assert plan is not None
    return [note.id for note in plan.notes]


@pytest.mark.parametrize("options", ["-c 4096 --port 9999 --api-key k", "--ctx-size 4096 -fit on"])
def test_commands_that_mean_the_same_have_one_plan(options: str) -> None:
    plans = planner()
    assert plans.quick(command(options)) is plans.quick(command("-c 4096"))
    assert plans.quick(command("-c 8192")) is not plans.quick(command("-c 4096"))


def test_threads_and_arenas_decide_too() -> None:
    limited = Pool("host", ("host",), 16 * GIB, 16 * GIB, ULIMIT)
    plans = planner(limited)
    margins = [
        plans.quick(one).pools[0].margin
        for one in (
            command("-c 4096 --threads-http 4", MALLOC_ARENA_MAX="64"),
            command("-c 4096 --threads-http 8", MALLOC_ARENA_MAX="64"),
            command("-c 4096 --threads-http 8", MALLOC_ARENA_MAX="1"),
        )
    ]
    assert margins[0] < margins[1] > margins[2]


def test_an_answer_is_asked_for_once_and_the_formulas_never_ask() -> None:
    told = Told(4096)
    plans = planner(answers=told)
    asked = command("-c 4096 --fit off")
    quick = plans.quick(asked)
    assert told.asked == 0
    sure = plans.plan(asked)
    assert plans.plan(asked) is sure
    assert plans.quick(asked) is quick
    assert told.asked == 1
    assert quick != sure


def test_many_are_asked_together_and_one_without_an_answer_ends_it() -> None:
    told = Told(4096, 8192)
    plans = planner(answers=told)
    some = [command(f"-c {tokens} --fit off") for tokens in (4096, 8192)]
    assert [notes(plan) for plan in plans.plans(some)] == [["drift", "drift"]] * 2
    assert told.together == 2
    more = [*some, command("-c 512 --fit off")]
    found = plans.plans(more)
    left: object = plans.answers
    assert left is None
    assert found == [plans.quick(one) for one in more]


def test_what_no_plan_can_be_made_of_is_null_among_many() -> None:
    plans = planner()
    found = plans.plans([command("-c 4096"), command("-dev CUDA7")])
    assert found[0] is not None
    assert found[1] is None
    with pytest.raises(UsageError, match="CUDA7"):
        plans.plan(command("-dev CUDA7"))


@pytest.mark.engine
def test_an_engine_answers_each_question_once(
    engine_path: Callable[[int], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    environ = {"GGML_VK_VISIBLE_DEVICES": "99"}
    asked = DryRuns(engine_path(10434).parent, environ)
    request = EngineParams(model=LLAMA, n_ctx=4096)
    first = asked.sizes(request)
    asked.library_dir = Path("/nowhere")
    assert asked.sizes(request) is first
    other = asked.sizes(EngineParams(model=LLAMA, n_ctx=8192))
    assert isinstance(other, Unanswered)
    assert not asked.prepare([EngineParams(model=LLAMA, n_ctx=8192)])
