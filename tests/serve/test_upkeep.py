"""Contexts and memory of a real engine under a supervisor: over a kill, and over a restart."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from arriero.base.sizes import GIB
from arriero.command import parse_command
from arriero.engine import find_engine
from arriero.gguf import write_model
from arriero.gguf.presets import tiny
from arriero.launch import serving_of
from arriero.process import clean_environment
from arriero.record.incident import Incident
from arriero.serve import upkeep
from arriero.serve.contexts import Proof
from arriero.serve.memory_watch import HOST, Reading
from arriero.serve.supervisor.interface import Live
from arriero.serve.supervisor.log import RotatingLog
from arriero.serve.supervisor.options import Hooks, Options
from arriero.serve.supervisor.supervisor import Supervisor
from arriero.serve.upkeep import IDLE, Upkeep
from tests.serve.supervisor.plain import PlainUpstream, answer

pytestmark = [pytest.mark.engine, pytest.mark.timeout(120)]

PROMPT = [(7919 * n) % 200 + 3 for n in range(300)]


@dataclass
class Kept:
    """A supervised engine and its upkeep."""

    supervisor: Supervisor
    upkeep: Upkeep
    incidents: list[Incident]
    notes: list[str] = field(default_factory=list)

    async def live(self) -> Live:
        return await asyncio.wait_for(self.supervisor.serving(), 60)

    async def complete(self, live: Live, prompt: list[int]) -> bytes:
        assert isinstance(live.upstream, PlainUpstream)
        body: dict[str, Any] = {"prompt": prompt, "n_predict": 2, "temperature": 0}
        status, got = await answer(live.upstream, "/completion", **body)
        assert status == 200, got
        self.supervisor.progressed(live.generation)
        return got

    async def rest(self) -> None:
        """Nothing is asked for long enough."""
        run = self.supervisor.run
        assert run is not None
        for now in (1000.0, 1000.0 + IDLE):
            await self.upkeep.save_if_idle(self.supervisor, run, now)


@asynccontextmanager
async def kept(engine: Path, home: Path, reserve: int = 0) -> AsyncIterator[Kept]:
    environ = clean_environment()
    installed = find_engine(str(engine), option=None, environ=environ, cwd=home)
    model = write_model(home / "m.gguf", tiny("llama"))
    words = [str(engine), "-m", str(model), "-np", "1", "-c", "2048", "-t", "2"]
    command = parse_command(words, installed.flags, environ)
    incidents: list[Incident] = []
    notes: list[str] = []
    with Upkeep(
        command,
        serving_of(command, home),
        cwd=home,
        build=installed.build,
        keep_context="auto",
        memory_reserve=reserve,
        note=notes.append,
    ) as tended:

        def incident(one: Incident) -> None:
            incidents.append(one)
            tended.incident(one)

        log = RotatingLog(home / "log" / "engine.log", 1 << 20)
        supervisor = Supervisor(
            tended.command,
            installed,
            PlainUpstream,
            log,
            Options(home),
            Hooks(incident=incident, ready=tended.ready, leaving=tended.leaving),
        )
        supervisor.start()
        try:
            yield Kept(supervisor, tended, incidents, notes)
        finally:
            await asyncio.wait_for(supervisor.stop(), 60)
            log.close()


def cached(body: bytes) -> int:
    count = json.loads(body)["timings"]["cache_n"]
    assert isinstance(count, int)
    return count


def test_a_conversation_goes_on_after_a_kill_without_being_read_again(
    tmp_path: Path, engine_path: Callable[[int], Path]
) -> None:
    async def run() -> Path:
        async with kept(engine_path(10434), tmp_path) as one:
            live = await one.live()
            contexts = one.upkeep.contexts
            assert contexts is not None
            await one.complete(live, PROMPT)
            assert not contexts.saved, "it has not rested yet"
            await one.rest()
            (saved,) = contexts.saved
            assert contexts.directory.stat().st_mode & 0o777 == 0o700
            pid = one.supervisor.view().pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            await one.supervisor.lost(live.generation, "test")
            again = await one.live()
            assert again.generation == live.generation + 1
            assert contexts.waits_for_proof
            more = PROMPT + [9] * (saved.tokens - len(PROMPT)) + [5, 6, 7]
            body = await one.complete(again, more)
            contexts.heard(body)
            assert contexts.proof is Proof.SHOWN
            assert cached(body) >= len(PROMPT)
            assert [note for note in one.notes if "restored" in note]
            return contexts.directory

    assert not asyncio.run(run()).exists()


def test_memory_that_runs_out_is_a_restart_with_its_contexts(
    tmp_path: Path, engine_path: Callable[[int], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def taken(at: float, *_: object) -> dict[str, Reading]:
        """A GiB each second."""
        return {HOST: Reading(at, int((8 - at) * GIB), int(at * GIB))}

    monkeypatch.setattr(upkeep, "readings", taken)

    async def run() -> None:
        async with kept(engine_path(10434), tmp_path, reserve=2 * GIB) as one:
            live = await one.live()
            await one.complete(live, PROMPT)
            supervisor = one.supervisor
            assert supervisor.run is not None
            for at in (0.0, 2.0, 5.0):
                await one.upkeep.look(supervisor, supervisor.run, at)
                assert not one.incidents
            await one.upkeep.look(supervisor, supervisor.run, 7.0)
            again = await one.live()
            assert again.generation == live.generation + 1
            assert "1.00 GiB are left of host" in one.incidents[0].verdict.text
            assert cached(await one.complete(again, [*PROMPT, 5, 6, 7])) >= len(PROMPT) - 1

    asyncio.run(run())
