"""Requests over engines that die at any moment: each ends once, and none is doubled or cut."""

from __future__ import annotations

import asyncio

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from arriero.serve.http.interface import Request
from arriero.serve.requests.desk import Desk
from arriero.serve.requests.ledger import Ledger, Outcome
from arriero.serve.requests.lobby import Lobby
from arriero.serve.requests.rules import Rules
from tests.serve.requests.fakes import (
    END,
    FakeCall,
    FakeEngine,
    FakeOutlet,
    request,
    words,
    words_instead,
)

SLOTS = 2
_TURNS = 40
"""Turns of the loop after which everything waits for the world."""


class Client:
    """One request and what its client sees."""

    def __init__(self, job: int, kind: str, count: int, asked: Request) -> None:
        self.job, self.kind, self.count, self.asked = job, kind, count, asked
        self.outlet = FakeOutlet()
        self.task: asyncio.Task[None] | None = None
        self.gone = False

    @property
    def done(self) -> bool:
        return self.task is not None and self.task.done()

    @property
    def expected(self) -> bytes:
        return b"".join(words(self.job, self.count))


class World(RuleBasedStateMachine):
    """Clients on one side, an engine on the other."""

    def __init__(self) -> None:
        super().__init__()
        self._patch = words_instead()
        self._patch.start()
        self.loop = asyncio.new_event_loop()
        self.clients: list[Client] = []
        self.loop.run_until_complete(self._begin())

    async def _begin(self) -> None:
        self.engine = FakeEngine(SLOTS)
        self.ledger = Ledger()
        lobby = Lobby(64, self.engine.working)
        self.desk = Desk(self.engine, Rules(hold=3600, comment=3600), self.ledger, lobby)

    def _settle(self) -> None:
        async def turns() -> None:
            for _ in range(_TURNS):
                await asyncio.sleep(0)

        self.loop.run_until_complete(turns())

    # the clients

    @rule(
        kind=st.sampled_from(["stream", "whole", "shaped", "plain", "other"]),
        count=st.integers(0, 5),
        client=st.sampled_from("abc"),
    )
    def arrives(self, kind: str, count: int, client: str) -> None:
        job = len(self.clients)
        one = Client(job, kind, count, request(job, kind, count, client))
        one.task = self.loop.create_task(self.desk.answer(one.asked, one.outlet))
        self.clients.append(one)
        self._settle()

    @precondition(lambda self: any(not one.done for one in self.clients))
    @rule(data=st.data())
    def goes(self, data: st.DataObject) -> None:
        one = data.draw(st.sampled_from([one for one in self.clients if not one.done]))
        assert one.task is not None
        one.gone = True
        one.task.cancel()
        self._settle()

    # the engine

    @precondition(lambda self: self.engine.live is None)
    @rule()
    def comes_back(self) -> None:
        self.engine.back()
        self._settle()

    @precondition(lambda self: self.engine.live is not None)
    @rule(blames=st.booleans())
    def dies(self, blames: bool) -> None:
        if self.engine.requests == 1:
            blames = False  # a request that kills it alone is another test's
        self.engine.die(blames=blames)
        self._settle()

    @precondition(lambda self: self._working())
    @rule(data=st.data(), steps=st.integers(1, 4))
    def works(self, data: st.DataObject, steps: int) -> None:
        call = data.draw(st.sampled_from(self._working()))
        for _ in range(steps):
            if call.working:
                call.step()
                self._settle()

    @precondition(lambda self: self._working())
    @rule(data=st.data())
    def cuts_a_word(self, data: st.DataObject) -> None:
        call = data.draw(st.sampled_from(self._working()))
        if call.head.done() and call.left and call.asked["kind"] != "plain":
            call.give(call.left[0][:1])  # the rest of it never comes
            self.engine.die(blames=False)
            self._settle()

    def _working(self) -> list[FakeCall]:
        return self.engine.upstream.working if self.engine.live is not None else []

    # what must always hold

    @invariant()
    def balances(self) -> None:
        told = self.ledger.told()
        ended = sum(getattr(told, outcome.value) for outcome in Outcome)
        assert told.received == len(self.clients)
        assert told.received == ended + told.in_flight
        assert told.in_flight == sum(not one.done for one in self.clients)
        assert 0 <= told.waiting <= told.in_flight
        assert told.lost == 0
        assert told.executed_twice == 0
        assert told.cancelled == sum(one.gone for one in self.clients)

    @invariant()
    def bounds_what_works(self) -> None:
        busy = [call for call in self._working() if call.asked["kind"] != "other"]
        assert len(busy) <= SLOTS
        assert self.engine.requests == self.desk.lobby.in_work <= SLOTS
        jobs = [call.asked["job"] for call in self._working()]
        assert len(jobs) == len(set(jobs)), "the same request twice at once"

    @invariant()
    def says_what_is_true(self) -> None:
        for one in self.clients:
            text, outlet = one.outlet.text(), one.outlet
            assert not one.done or one.gone or outlet.over, "no end"
            if one.kind in {"stream", "shaped"}:
                said = text.removesuffix(END).removesuffix(b"BROKEN;")
                assert one.expected.startswith(said), (said, one.expected)
                assert not text.endswith(b"BROKEN;") or one.kind == "shaped"
            if one.done and not one.gone and outlet.status == 200 and b"BROKEN" not in text:
                assert text.removesuffix(END) == one.expected

    def teardown(self) -> None:
        try:
            if self.engine.live is None:
                self.comes_back()
            for _ in range(1000):
                if not self._working():
                    break
                self._working()[0].step()
                self._settle()
            assert all(one.done for one in self.clients), "one waits for ever"
            self.balances()
            self.says_what_is_true()
            assert self.desk.lobby.in_work == 0
            assert all(one.outlet.status == 200 for one in self.clients if not one.gone)
        finally:
            for one in self.clients:
                if one.task is not None and not one.done:
                    one.task.cancel()
            self._settle()
            self.loop.close()
            self._patch.stop()


TestWorld = World.TestCase
TestWorld.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
