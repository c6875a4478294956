"""Which command follows a failure, as the assignment's policy has it."""

from __future__ import annotations

import asyncio
import socket
from types import SimpleNamespace
from typing import Any, cast

from arriero.base.words import Component, Kind, Recovery
from arriero.command import Command, builtin_flags, parse_command
from arriero.logs.model import Failure
from arriero.serve.assignment import Assignment, Smaller
from arriero.serve.supervisor.assigned import choice
from arriero.serve.supervisor.workers import Workers, silent, takes_connections

WORDS = ["llama-server", "-m", "a.gguf", "--rpc", "one:1,two:2", "-np", "4"]
COMMAND = parse_command(WORDS, builtin_flags(), {})


def failure(kind: Kind) -> Failure:
    return Failure(kind=kind, fatal=True, line=1, text="it broke")


def assigned() -> tuple[Assignment, list[Any]]:
    asked: list[Any] = []

    def smaller(command: Command, why: Failure | None) -> Smaller:
        asked.append(("smaller", why and why.kind))
        return Smaller(command.with_value("-np", "2"), "-np 4 -> 2")

    def without(command: Command, gone: frozenset[str]) -> Smaller:
        asked.append(("without", gone))
        return Smaller(command.with_value("--rpc", "one:1"), "--rpc one:1")

    return cast("Assignment", SimpleNamespace(smaller=smaller, without=without)), asked


def test_memory_is_met_with_less() -> None:
    assignment, asked = assigned()
    found = choice(assignment)(COMMAND, failure(Kind.ALLOCATION))
    assert found is not None
    assert (found.recovery, found.change) == (Recovery.SMALLER, "-np 4 -> 2")
    assert asked == [("smaller", Kind.ALLOCATION)]


def test_a_worker_that_is_gone_is_left_out() -> None:
    assignment, asked = assigned()
    found = choice(assignment, lambda name: name == "one:1")(COMMAND, failure(Kind.RPC))
    assert found is not None
    assert found.recovery is Recovery.WITHOUT_WORKER
    assert asked == [("without", frozenset({"two:2"}))]


def test_after_a_save_that_ended_it_nothing_is_saved() -> None:
    assignment, asked = assigned()
    save = Failure(
        kind=Kind.CRASH, component=Component.PROMPT_CACHE, fatal=True, line=1, text="it broke"
    )
    found = choice(assignment)(COMMAND, save)
    assert found is not None
    assert found.change == "-cram 0"
    assert found.command.value("-cram") == "0"
    assert choice(assignment)(found.command, save) is None
    assert not asked


def test_workers_that_all_answer_are_tried_again() -> None:
    assignment, asked = assigned()
    assert choice(assignment, lambda name: True)(COMMAND, failure(Kind.RPC)) is None
    assert not asked


def test_who_answers_is_asked_for_real() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        name = f"127.0.0.1:{server.getsockname()[1]}"
        assert takes_connections(name)
        assert silent([name, "127.0.0.1:port"], takes_connections) == {"127.0.0.1:port"}
    assert not takes_connections(name)


def test_a_restart_waits_for_a_worker_that_was_there_and_for_no_other() -> None:
    told: list[str] = []
    back: list[socket.socket] = []

    async def run() -> None:
        server = socket.create_server(("127.0.0.1", 0))
        port = server.getsockname()[1]
        command = COMMAND.with_value("--rpc", f"127.0.0.1:{port},127.0.0.1:1")
        workers = Workers()
        await workers.look(command)
        server.close()

        def tell(why: str) -> None:
            if not told:
                back.append(socket.create_server(("127.0.0.1", port)))
            told.append(why)

        await asyncio.wait_for(workers.back(command, tell), 20)
        assert told == [f"waiting for the worker 127.0.0.1:{port}"]

    asyncio.run(run())
    for server in back:
        server.close()
