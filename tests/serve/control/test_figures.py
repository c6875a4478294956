"""Slots and tokens as the engine tells them, over its restarts, without keeping it awake."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path

import aiohttp
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arriero.jobs import skeleton
from arriero.record import RequestCounts, SlotUse
from arriero.serve.control.figures import Counted, Figures, counted_in, foreign_metrics, slots_in
from tests.engine_oracle.real import running
from tests.report import served
from tests.serve.control.viewing import Seen

SLOTS = json.dumps(
    [
        {"id": 0, "n_ctx": 2048, "speculative": False, "is_processing": False},
        {"id": 1, "n_ctx": 2048, "is_processing": True, "n_prompt_tokens": 52, "params": {"a": []}},
    ]
).encode()


def metrics(prompt: float, reused: float | None, predicted: float, seconds: float) -> bytes:
    cached = "" if reused is None else f"llamacpp:prompt_tokens_cached_total {reused}\n"
    return (
        f"# HELP llamacpp:prompt_tokens_total Number of prompt tokens processed.\n"
        f"# TYPE llamacpp:prompt_tokens_total counter\nllamacpp:prompt_tokens_total {prompt}\n"
        f"{cached}llamacpp:prompt_seconds_total {seconds}\n"
        f"llamacpp:tokens_predicted_total {predicted}\n"
        f"llamacpp:tokens_predicted_seconds_total {seconds * 2}\n"
    ).encode()


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def bare() -> Seen:
    """A view that knows nothing of tokens and slots itself."""
    status = served.status()
    view = Seen()
    view.now = msgspec.structs.replace(status, slots=(), tokens=type(status.tokens)())
    view.answers = {"/slots": SLOTS, "/metrics": metrics(100, 10, 50, 1)}
    return view


def refreshed(figures: Figures) -> None:
    asyncio.run(figures.refresh())


def with_engine(view: Seen, pid: int | None) -> None:
    engine = msgspec.structs.replace(view.now.engine, pid=pid)
    view.now = msgspec.structs.replace(view.now, engine=engine)


def test_slots_and_tokens_are_read() -> None:
    figures = Figures(bare(), Clock())
    refreshed(figures)
    assert figures.slots == (
        SlotUse(id=0, busy=False, tokens=0, n_ctx=2048),
        SlotUse(id=1, busy=True, tokens=52, n_ctx=2048),
    )
    tokens = figures.tokens()
    assert (tokens.prompt, tokens.reused, tokens.predicted) == (100, 10, 50)
    assert (tokens.prompt_tps, tokens.predict_tps) == (100.0, 25.0)


def test_speeds_are_those_of_late() -> None:
    view, clock = bare(), Clock()
    figures = Figures(view, clock)
    refreshed(figures)
    for second in range(60):
        clock.now += 1
        view.answers["/metrics"] = metrics(100 + 10 * second, None, 50, 1 + second)
        refreshed(figures)
    assert figures.tokens().prompt_tps == 10.0
    clock.now += 100
    refreshed(figures)
    assert figures.tokens().prompt_tps == 10.0, "without new tokens the last speed stays"


def test_tokens_are_counted_over_restarts() -> None:
    view, clock = bare(), Clock()
    figures = Figures(view, clock)
    refreshed(figures)
    with_engine(view, None)
    refreshed(figures)
    assert figures.slots == ()
    assert figures.tokens().predicted == 50
    with_engine(view, 77)
    view.answers["/metrics"] = metrics(7, None, 5, 1)
    refreshed(figures)
    tokens = figures.tokens()
    assert (tokens.prompt, tokens.reused, tokens.predicted) == (107, 10, 55)


def test_however_many_look_the_engine_is_asked_once() -> None:
    view, clock = bare(), Clock()
    figures = Figures(view, clock)

    async def several() -> None:
        await asyncio.gather(*(figures.refresh() for _ in range(20)))

    asyncio.run(several())
    assert view.asked == ["/slots", "/metrics"]
    clock.now += 1
    refreshed(figures)
    assert len(view.asked) == 4


def test_an_engine_that_does_not_answer_is_left_in_peace() -> None:
    view, clock = bare(), Clock()
    figures = Figures(view, clock)
    refreshed(figures)
    view.answers = {}
    for _ in range(5):
        clock.now += 1
        refreshed(figures)
    assert len(view.asked) == 4
    assert len(figures.slots) == 2, "what was known stays while the engine is busy"


def with_requests(view: Seen, received: int, in_flight: int) -> None:
    requests = RequestCounts(received=received, in_flight=in_flight)
    view.now = msgspec.structs.replace(view.now, requests=requests)


def test_an_engine_without_requests_is_not_asked_for_ever() -> None:
    view, clock = bare(), Clock()
    figures = Figures(view, clock)

    def asked() -> int:
        before = len(view.asked)
        for _ in range(20):
            clock.now += 1
            refreshed(figures)
        return (len(view.asked) - before) // 2

    with_requests(view, 0, 0)
    assert (asked(), asked()) == (2, 0)
    with_requests(view, 1, 1)
    assert asked() == 20
    with_requests(view, 1, 0)
    assert (asked(), asked()) == (2, 0)
    with_requests(view, 2, 0)
    assert (asked(), asked()) == (2, 0), "one that came and went between two looks"
    with_engine(view, 78)
    assert asked() == 2


def test_an_engine_that_sleeps_is_not_woken() -> None:
    view, clock = bare(), Clock()
    with_requests(view, 3, 0)
    view.asleep = True
    figures = Figures(view, clock)
    refreshed(figures)
    assert view.asked == []
    view.asleep = False
    refreshed(figures)
    assert view.asked == ["/slots", "/metrics"]
    assert len(figures.slots) == 2
    view.asleep = True
    refreshed(figures)
    assert not figures.slots, "what slots held is gone with the sleep"


def test_without_metrics_tokens_are_not_known() -> None:
    view = bare()
    del view.answers["/metrics"]
    figures = Figures(view, Clock())
    refreshed(figures)
    assert figures.tokens() == type(view.now.tokens)()


@given(
    st.binary(max_size=300)
    | st.recursive(st.none() | st.integers(), st.lists).map(repr).map(str.encode)
)
@settings(deadline=None)
def test_any_bytes_give_slots_or_none(data: bytes) -> None:
    slots_in(data)
    counted_in(data.decode("utf-8", "replace"))


def test_the_engine_cannot_speak_in_arriero_s_name() -> None:
    text = "# HELP arriero_state x\narriero_state 4\n\n# TYPE process_x gauge\nllamacpp:x 1\n"
    assert foreign_metrics(text) == "llamacpp:x 1\n"
    assert counted_in("llamacpp:prompt_tokens_total many") is None
    assert Counted(1, None, 2) + Counted(3, 4, 5) == Counted(4, 4, 7)


@pytest.mark.engine
@pytest.mark.parametrize("build", [10068, 10434])
def test_a_real_engine_tells(
    build: int, engine_path: Callable[[int], Path], tmp_path: Path
) -> None:
    model = tmp_path / "tiny.gguf"
    skeleton.write(model, arch="llama")
    args = ["-m", str(model), "-c", "512", "-np", "2", "--metrics"]
    with running(engine_path(build), args) as (_, lines):
        url = next(m[1] for line in lines if (m := re.search(r"listening on (http://\S+)", line)))
        figures = asyncio.run(asked_of(url))
    tokens = figures.tokens()
    assert tokens.predicted == 16
    assert tokens.prompt
    assert (tokens.reused is not None) is (build >= 10434)
    assert [slot.n_ctx for slot in figures.slots] == [256, 256]
    assert sum(slot.tokens or 0 for slot in figures.slots) >= 12


async def asked_of(url: str) -> Figures:
    """The figures of an engine that has answered two requests of eight tokens."""
    async with aiohttp.ClientSession(url) as session:

        class Real(Seen):
            async def ask(self, path: str) -> bytes | None:
                async with session.get(path) as answer:
                    return await answer.read() if answer.status == 200 else None

        body = {"prompt": "one two three four", "n_predict": 8, "ignore_eos": True}
        for _ in range(2):
            async with session.post("/completion", json=body) as answer:
                assert (await answer.json())["timings"]["predicted_n"] == 8
        figures = Figures(Real(now=bare().now))
        await figures.refresh()
        return figures
