"""One request's life where it is not plain sailing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest

from arriero.serve.http.interface import Request
from arriero.serve.requests.desk import Desk
from arriero.serve.requests.ledger import Ledger, Phase, Ticket
from arriero.serve.requests.lobby import Lobby
from arriero.serve.requests.rules import Rules
from tests.serve.requests.fakes import (
    JSON,
    FakeCall,
    FakeEngine,
    FakeOutlet,
    request,
    words,
    words_instead,
)

CROWDED = (
    b'{"error":{"code":500,"message":"Context size has been exceeded.","type":"server_error"}}'
)


@pytest.fixture(autouse=True)
def fake_api() -> Iterator[None]:
    with words_instead():
        yield


class Scene:
    """A desk with an engine that answers, and clients."""

    def __init__(self, slots: int = 2, **rules: object) -> None:
        self.engine = FakeEngine(slots)
        self.became: list[tuple[str, str]] = []
        self.ledger = Ledger()
        self.rules = Rules(became=lambda *told: self.became.append(told), **rules)  # type: ignore[arg-type]
        self.lobby = Lobby(64, self.engine.working)
        self.desk = Desk(self.engine, self.rules, self.ledger, self.lobby)
        self.engine.back()

    async def ask(self, asked: Request) -> tuple[FakeOutlet, asyncio.Task[None]]:
        outlet = FakeOutlet()
        task = asyncio.create_task(self.desk.answer(asked, outlet))
        await self.settle()
        return outlet, task

    @staticmethod
    async def settle() -> None:
        for _ in range(40):
            await asyncio.sleep(0)

    @property
    def calls(self) -> list[FakeCall]:
        return self.engine.upstream.working

    async def step(self, call: FakeCall, times: int = 1) -> None:
        for _ in range(times):
            if call.working:
                call.step()
                await self.settle()

    async def finish(self) -> None:
        while self.calls:
            await self.step(self.calls[0])

    def counts(self) -> dict[str, int]:
        return {name: count for name, count in self.ledger.counts.items() if name != "received"}


def scene(test: Callable[[Scene], Awaitable[None]], slots: int = 2, **rules: object) -> None:
    async def whole() -> None:
        await test(Scene(slots, **rules))

    asyncio.run(whole())


def test_a_stream_goes_on_where_it_broke() -> None:
    async def test(s: Scene) -> None:
        outlet, task = await s.ask(request(1, "stream", 5))
        await s.step(s.calls[0], 4)
        assert outlet.text() == b"".join(words(1, 3))
        s.engine.die(blames=False)
        s.engine.back()
        await s.settle()
        assert s.calls[0].asked["said"] == 3
        await s.finish()
        await task
        assert outlet.body == b"".join(words(1, 3)) + b": arriero continued\n\n" + b"".join(
            [*words(1, 5, 3), b"END;"]
        )
        assert s.counts() == {"continued": 1, "held": 1, "answered": 1}
        assert s.became == [("inci-1", "continued")]

    scene(test)


def test_what_was_not_answered_is_sent_again_and_says_so() -> None:
    async def test(s: Scene) -> None:
        outlet, task = await s.ask(request(1, "plain", 3))
        await s.step(s.calls[0], 3)
        for _ in range(2):
            s.engine.die(blames=False)
            s.engine.back()
            await s.settle()
        await s.finish()
        await task
        assert (outlet.status, outlet.body) == (200, b"".join(words(1, 3)))
        assert outlet.headers[b"x-arriero-replayed"] == b"2"
        assert s.counts() == {"replayed": 1, "held": 1, "answered": 1}

    scene(test)


def test_a_whole_answer_that_was_continued_says_so() -> None:
    async def test(s: Scene) -> None:
        outlet, task = await s.ask(request(1, "whole", 3))
        await s.step(s.calls[0], 2)
        s.engine.die(blames=False)
        s.engine.back()
        await s.settle()
        await s.finish()
        await task
        assert outlet.body == b"".join(words(1, 3))
        assert outlet.headers[b"x-arriero-continued"] == b"1"

    scene(test)


def test_one_that_kills_the_engine_alone_ends_and_the_innocent_are_answered() -> None:
    async def test(s: Scene) -> None:
        bad, bad_task = await s.ask(request(1, "plain", 3))
        good, good_task = await s.ask(request(2, "plain", 3))
        s.engine.die(blames=True)  # both are suspects
        for _ in range(20):
            if s.engine.live is None:
                s.engine.back()
            await s.settle()
            assert s.engine.requests <= 1, "a suspect has company"
            if bad_task.done() and good_task.done():
                break
            if s.calls[0].asked["job"] == 1:
                s.engine.die(blames=True)
                await s.settle()
            else:
                await s.step(s.calls[0], 9)
                continue
        assert (good.status, good.body) == (200, b"".join(words(2, 3)))
        assert bad.status == 500
        assert b"3 times" in bad.body
        assert s.counts()["error_events"] == s.counts()["answered"] == 1
        assert s.engine.generation <= 6

    scene(test)


def test_a_kill_from_outside_makes_nobody_a_suspect() -> None:
    async def test(s: Scene) -> None:
        tasks = [(await s.ask(request(n, "plain", 2)))[1] for n in range(2)]
        for _ in range(5):
            s.engine.die(blames=False)
            s.engine.back()
            await s.settle()
        assert s.engine.requests == 2
        await s.finish()
        await asyncio.gather(*tasks)
        assert s.counts()["answered"] == 2

    scene(test)


def test_requests_that_crowd_each_other_out_go_one_by_one() -> None:
    async def test(s: Scene) -> None:
        asked = [await s.ask(request(n, "plain", 2)) for n in range(2)]
        for call in s.calls:
            call.begin(500, JSON)
            call.give(CROWDED)
            call.finish()
        await s.settle()
        assert len(s.calls) == 1
        await s.finish()
        await asyncio.gather(*(task for _, task in asked))
        assert [outlet.status for outlet, _ in asked] == [200, 200]
        assert s.engine.generation == 1, "the engine is not sick"

    scene(test)


NO_MEMORY = b'{"error":{"code":400,"message":"std::bad_alloc"}}'


@pytest.mark.parametrize(
    ("answered", "body", "status", "generations"),
    [
        (500, b"sick", 200, 2),
        (500, b"odd", 500, 1),
        (400, NO_MEMORY, 200, 2),
        (400, b"sick", 400, 1),
    ],
)
def test_an_error_of_the_engine_is_the_clients_unless_it_is_sick(
    answered: int, body: bytes, status: int, generations: int
) -> None:
    async def test(s: Scene) -> None:
        outlet, task = await s.ask(request(1, "plain", 2))
        s.calls[0].begin(answered, JSON)
        s.calls[0].give(body)
        s.calls[0].finish()
        await s.settle()
        if s.engine.live is None:
            s.engine.back()
            await s.settle()
        await s.finish()
        await task
        assert (outlet.status, s.engine.generation) == (status, generations)

    scene(test)


def test_a_connection_that_breaks_again_and_again_is_no_reason_to_ask_for_ever() -> None:
    async def test(s: Scene) -> None:
        outlet, task = await s.ask(request(1, "plain", 2))
        for _ in range(10):
            for call in s.calls:
                call.lose("dropped")
            await s.settle()
        assert task.done()
        assert outlet.status == 500
        assert s.counts()["executed_twice"] == 1

    scene(test)


@pytest.mark.parametrize("kind", ["plain", "stream"])
def test_held_too_long_is_said_in_the_form_that_the_client_knows(kind: str) -> None:
    async def test(s: Scene) -> None:
        s.engine.die(blames=False)
        outlet, task = await s.ask(request(1, kind, 2))
        await task
        if kind == "plain":
            assert outlet.status == 503
            assert int(outlet.headers[b"retry-after"]) > 0
            assert s.counts() == {"held": 1, "refused": 1}
        else:
            assert outlet.status == 200
            assert outlet.body.startswith(b": arriero waiting\n\n")
            assert outlet.text() == b"BROKEN;"
            assert s.counts() == {"held": 1, "error_events": 1}

    scene(test, hold=0.2, comment=0.05)


def test_an_engine_that_is_given_up_is_told_to_all_that_wait() -> None:
    async def test(s: Scene) -> None:
        s.engine.die(blames=False)
        outlet, task = await s.ask(request(1, "plain", 2))
        s.engine.give_up("it cannot load")
        await task
        assert outlet.status == 503
        assert b"it cannot load" in outlet.body

    scene(test)


def test_at_the_end_who_has_no_answer_is_told_so() -> None:
    async def test(s: Scene) -> None:
        stream, _ = await s.ask(request(1, "stream", 3))
        await s.step(s.calls[0], 2)
        whole, _ = await s.ask(request(2, "plain", 3))
        waiting, _ = await s.ask(request(3, "plain", 3))
        await s.desk.stop()
        assert stream.text() == b"".join([*words(1, 1), b"BROKEN;"])
        assert (whole.status, waiting.status) == (503, 503)
        assert s.counts() == {"error_events": 1, "refused": 2}
        assert s.ledger.in_flight == s.lobby.in_work == 0
        late, task = await s.ask(request(4, "plain", 3))
        await task
        assert late.status == 503

    scene(test)


def test_what_needs_no_slot_does_not_queue_and_is_no_sign_of_work() -> None:
    async def test(s: Scene) -> None:
        await s.ask(request(1, "stream", 3))
        outlet, task = await s.ask(request(2, "other", 3))
        assert len(s.calls) == 2
        before = s.engine.signs
        await s.step(s.calls[1], 5)
        await task
        assert outlet.status == 200
        assert s.engine.signs == before
        await s.desk.stop()

    scene(test, slots=1)


def test_a_queue_that_is_full_refuses() -> None:
    async def test(s: Scene) -> None:
        s.lobby.most = 1
        for n in range(2):
            await s.ask(request(n, "plain", 1))
        outlet, task = await s.ask(request(3, "plain", 1))
        await task
        assert outlet.status == 503
        assert b"retry-after" in outlet.headers
        await s.finish()
        assert s.counts() == {"refused": 1, "answered": 2}

    scene(test, slots=1)


@pytest.mark.parametrize("turns", range(12))
def test_a_client_that_goes_as_its_turn_comes_takes_none_with_it(turns: int) -> None:
    async def test(s: Scene) -> None:
        await s.ask(request(1, "plain", 0))
        _, task = await s.ask(request(2, "plain", 1))
        s.calls[0].step()
        await s.settle()
        s.calls[0].step()  # its end
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await s.settle()
        assert (s.lobby.in_work, s.lobby.waiting, s.ledger.in_flight) == (0, 0, 0)
        assert s.counts() == {"answered": 1, "cancelled": 1}

    scene(test, slots=1)


def test_a_ticket_goes_only_where_its_life_can() -> None:
    ledger = Ledger()
    ticket: Ticket = ledger.receive()
    with pytest.raises(AssertionError):
        ticket.move(Phase.ANSWERING)
