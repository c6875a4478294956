"""How long the longest prompt of a load gets: as long as it can be without looking like a hang."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from arriero.launch import Mode, Serving
from arriero.trial.load import MODEST, Workload, _Load
from arriero.trial.prompts import Request
from arriero.trial.replies import LoadResult, Reply

WANT = 131_072 - 10


@dataclass
class Slow(_Load):
    """A load whose requests take as long as ``seconds_of`` says, on no clock at all."""

    seconds_of: Any = None
    asked: list[int] = field(default_factory=list)

    async def _post(self, request: Request) -> Reply:
        self.asked.append(request.tokens)
        seconds = self.seconds_of(request.tokens)
        late = seconds > self.workload.timeout_s
        return Reply(
            ok=not late,
            status=None if late else 200,
            seconds=min(seconds, self.workload.timeout_s),
            tokens=request.tokens,
            prompt_tps=request.tokens / seconds,
            timed_out=late,
        )


def longest(seconds_of: Any, workload: Workload) -> tuple[list[int], LoadResult]:
    async def answered(_: int) -> None:
        pass

    serving = Serving(
        host="127.0.0.1", port=1, socket=None, tls=False, prefix="", api_keys=(), mode=Mode.TEXT,
        router=False, metrics=False, slots=True,
    )  # fmt: skip
    result = LoadResult()
    client: Any = None
    load = Slow(
        client, serving, workload, result, 1, WANT + 10, 512, dict, None, lambda: True, answered,
        seconds_of=seconds_of,
    )  # fmt: skip
    load.prompts.vocabulary = [1, 2, 3]

    async def run() -> None:
        await load._ask([16])
        await load._near_context()

    asyncio.run(run())
    return load.asked[1:], result


@pytest.mark.parametrize("workload", [Workload(), Workload(long_prompt_s=30.0)])
def test_time_that_grows_with_the_square_is_not_taken_for_a_hang(workload: Workload) -> None:
    asked, result = longest(lambda n: n / 17_000 + (n / 6500) ** 2, workload)
    assert result.broken is None
    assert max(reply.seconds for reply in result.replies) <= 2.1 * workload.long_prompt_s
    assert max(asked) > 2 * MODEST


def test_a_fast_server_gets_the_whole_context() -> None:
    asked, result = longest(lambda n: n / 1e6, Workload())
    assert asked[-1] == WANT
    assert not result.skipped


def test_a_slow_server_gets_one_short_prompt() -> None:
    asked, result = longest(lambda n: n / 20.0, Workload())
    assert asked == [64]
    assert "too long here" in result.skipped[0]


def test_a_server_that_stops_answering_is_asked_no_more() -> None:
    asked, result = longest(lambda n: 1e-3 if n <= MODEST else 1e9, Workload())
    assert asked == [MODEST, 4 * MODEST]
    assert result.broken is not None
    assert result.broken.timed_out
