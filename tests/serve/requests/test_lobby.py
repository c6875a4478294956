"""Whose turn it is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from arriero.serve.requests.lobby import FullError, Lobby


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def whole() -> None:
        await test()

    asyncio.run(whole())


async def queue(
    lobby: Lobby, order: list[str], *names: str, **how: bool
) -> list[asyncio.Task[None]]:
    """Let requests come one after the other; the first letter of a name is its client."""

    async def one(name: str) -> None:
        await lobby.enter(name[0], **how)
        order.append(name)

    tasks = []
    for name in names:
        tasks.append(asyncio.create_task(one(name)))
        await asyncio.sleep(0)
    return tasks


async def let_go(lobby: Lobby) -> None:
    while lobby.in_work:
        lobby.leave()
        await asyncio.sleep(0)
        await asyncio.sleep(0)


def test_clients_take_turns_however_many_requests_each_has() -> None:
    async def test() -> None:
        lobby, order = Lobby(10), list[str]()
        assert lobby.enter_now()
        await queue(lobby, order, "a1", "a2", "a3", "b1", "c1", "b2")
        await let_go(lobby)
        assert order == ["a1", "b1", "c1", "a2", "b2", "a3"]

    run(test)


def test_as_many_as_there_are_slots() -> None:
    async def test() -> None:
        told: list[int] = []
        lobby = Lobby(10, told.append)
        lobby.set_room(2)
        order: list[str] = []
        await queue(lobby, order, "a1", "a2", "a3")
        assert (order, lobby.in_work, lobby.waiting) == (["a1", "a2"], 2, 1)
        lobby.leave()
        await asyncio.sleep(0)
        assert (order, lobby.in_work) == (["a1", "a2", "a3"], 2)
        lobby.set_room(None)
        assert all(lobby.enter_now() for _ in range(50))
        await let_go(lobby)
        assert told[:4] == [1, 2, 1, 2]
        assert told[-1] == 0

    run(test)


def test_one_that_comes_again_goes_first_and_is_never_too_many() -> None:
    async def test() -> None:
        lobby, order = Lobby(1), list[str]()
        assert lobby.enter_now()
        await queue(lobby, order, "a1")
        with pytest.raises(FullError):
            await lobby.enter("b")
        await queue(lobby, order, "b1", again=True)
        await let_go(lobby)
        assert order == ["b1", "a1"]

    run(test)


def test_nothing_is_beside_one_that_goes_alone() -> None:
    async def test() -> None:
        lobby, order = Lobby(10), list[str]()
        lobby.set_room(4)
        assert lobby.enter_now()
        await queue(lobby, order, "s1", alone=True, again=True)
        await queue(lobby, order, "a1")
        assert order == [], "it waits until nothing is in work"
        assert not lobby.enter_now()
        lobby.leave()
        await asyncio.sleep(0)
        assert (order, lobby.in_work) == (["s1"], 1)
        assert not lobby.enter_now()
        lobby.leave()
        await asyncio.sleep(0)
        assert order == ["s1", "a1"]

    run(test)


def test_one_that_gives_up_its_place_takes_no_turn() -> None:
    async def test() -> None:
        lobby, order = Lobby(10), list[str]()
        assert lobby.enter_now()
        first, second = await queue(lobby, order, "a1", "b1")
        first.cancel()
        await asyncio.sleep(0)
        assert lobby.waiting == 1
        lobby.leave()
        second.cancel()  # its turn came, and it does not know yet
        await asyncio.gather(first, second, return_exceptions=True)
        assert (lobby.in_work, lobby.waiting) == (0, 0)
        assert lobby.enter_now()

    run(test)


def test_one_that_has_just_given_up_its_place_is_passed_over() -> None:
    async def test() -> None:
        lobby, order = Lobby(10), list[str]()
        assert lobby.enter_now()
        first, second = await queue(lobby, order, "a1", "b1")
        first.cancel()
        lobby.leave()  # before it could take itself out
        await asyncio.gather(first, second, return_exceptions=True)
        assert (order, lobby.in_work, lobby.waiting) == (["b1"], 1, 0)

    run(test)
