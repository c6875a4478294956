"""A supervisor and real engines with a real model."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from arriero.base.words import Kind, LimitKind
from arriero.command import parse_command
from arriero.engine import find_engine
from arriero.process import Limit, clean_environment
from arriero.serve.supervisor.interface import GaveUpError
from arriero.serve.supervisor.log import RotatingLog
from arriero.serve.supervisor.options import Options
from arriero.serve.supervisor.supervisor import Supervisor
from tests.serve.model import small_model
from tests.serve.supervisor.plain import PlainUpstream, answer

pytestmark = [pytest.mark.engine, pytest.mark.timeout(120)]


def supervisor_of(path: Path, cwd: Path, *words: str, limit: Limit | None = None) -> Supervisor:
    environ = clean_environment()
    engine = find_engine(str(path), option=None, environ=environ, cwd=cwd)
    line = [str(path), "-m", str(small_model()), "-np", "1", "-c", "1024", *words]
    return Supervisor(
        parse_command(line, engine.flags, environ),
        engine,
        PlainUpstream,
        RotatingLog(None, 1 << 20),
        Options(cwd, hang_after=30.0, limit=limit),
    )


@pytest.mark.parametrize("build", [10068, 10434])
def test_killed_while_it_answers(
    build: int, engine_path: Callable[[int], Path], tmp_path: Path
) -> None:
    async def run() -> None:
        supervisor = supervisor_of(engine_path(build), tmp_path)
        supervisor.start()
        try:
            live = await supervisor.serving()
            assert (live.n_slots, live.n_ctx_slot, live.defaults.build) == (1, 1024, build)
            assert live.defaults.temperature == pytest.approx(0.8)
            assert isinstance(live.upstream, PlainUpstream)
            prompt = "The muleteer counted the packs at dawn. " * 12
            assert (await answer(live.upstream, "/completion", prompt=prompt, n_predict=1))[
                0
            ] == 200
            started = supervisor.run
            assert started is not None
            while started.log.speed is None:  # it says so once the answer is out
                await asyncio.sleep(0.01)
            pid = supervisor.view().pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            loss = await supervisor.lost(1, "test")
            assert not loss.alive
            incident = supervisor.incidents.get(loss.incident or "")
            assert incident is not None
            assert incident.verdict.kind is Kind.KILLED
            assert (incident.lost_context_tokens or 0) > 100
            assert incident.reread_s is not None
            live = await supervisor.serving()
            assert live.generation == 2
        finally:
            await supervisor.stop()
        assert supervisor.view().pid is None

    asyncio.run(run())


@pytest.mark.parametrize("words", [("--embedding", "--pooling", "mean"), ("--rerank",)])
def test_ready_is_what_its_mode_answers(
    words: tuple[str, ...], engine_path: Callable[[int], Path], tmp_path: Path
) -> None:
    async def run() -> None:
        supervisor = supervisor_of(engine_path(10434), tmp_path, *words)
        supervisor.start()
        try:
            await supervisor.serving()
        finally:
            await supervisor.stop()

    asyncio.run(run())


def test_a_probe_does_not_wake_one_that_sleeps(
    engine_path: Callable[[int], Path], tmp_path: Path
) -> None:
    async def run() -> None:
        supervisor = supervisor_of(engine_path(10434), tmp_path, "--sleep-idle-seconds", "1")
        supervisor.start()
        try:
            await supervisor.serving()
            started = supervisor.run
            assert started is not None
            while not started.log.sleeping:
                await asyncio.sleep(0.05)
            assert (await supervisor.lost(1, "a connection broke while it slept")).alive
            await asyncio.sleep(1.5)
            assert started.log.sleeping
        finally:
            await supervisor.stop()

    asyncio.run(run())


def test_one_that_cannot_get_its_memory_is_given_up_with_that(
    engine_path: Callable[[int], Path], tmp_path: Path
) -> None:
    async def run() -> None:
        limit = Limit(600 << 20, LimitKind.ADDRESS_SPACE)
        supervisor = supervisor_of(engine_path(10434), tmp_path, limit=limit)
        supervisor.start()
        try:
            with pytest.raises(GaveUpError, match="failed to load 2 times in the same way"):
                await supervisor.serving()
            assert {one.verdict.kind for one in supervisor.incidents} == {Kind.ALLOCATION}
        finally:
            await supervisor.stop()

    asyncio.run(run())
