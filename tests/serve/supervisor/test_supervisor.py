"""A supervisor and an engine that dies, hangs and lies when it is told to."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from arriero.base.words import Kind, Recovery
from arriero.command import parse_command
from arriero.engine import find_engine
from arriero.process import clean_environment
from arriero.record.event import Event
from arriero.record.incident import Incident
from arriero.serve.supervisor.interface import GaveUpError, Live, State
from arriero.serve.supervisor.log import RotatingLog
from arriero.serve.supervisor.options import Alternative, Hooks, Options
from arriero.serve.supervisor.policy import Policy
from arriero.serve.supervisor.supervisor import Supervisor
from arriero.serve.supervisor.verdict import Condemned
from tests.serve.fake_engine import Home, Order
from tests.serve.supervisor.plain import PlainUpstream, answer

pytestmark = pytest.mark.timeout(60)


@dataclass
class Kept:
    """A supervisor of the engine that does no work, and what it told."""

    supervisor: Supervisor
    home: Home
    log: Path
    events: list[Event] = field(default_factory=list)
    incidents: list[Incident] = field(default_factory=list)

    async def ready(self) -> Live:
        return await asyncio.wait_for(self.supervisor.serving(), 20)

    async def after(self, generation: int) -> Live:
        """The start after this one."""
        while (live := await self.ready()).generation <= generation:
            await self.supervisor.lost(generation, "test")
        return live

    @property
    def state(self) -> State:
        return self.supervisor.state

    @property
    def pid(self) -> int:
        pid = self.supervisor.view().pid
        assert pid is not None
        return pid

    def ask(self, live: Live, prompt: str, **more: Any) -> asyncio.Task[tuple[int, bytes]]:
        assert isinstance(live.upstream, PlainUpstream)
        return asyncio.create_task(answer(live.upstream, "/completion", prompt=prompt, **more))


Keeping = Callable[..., Any]


@pytest.fixture
def keeping(tmp_path: Path) -> Keeping:
    @asynccontextmanager
    async def kept(
        *words: str, hooks: dict[str, Any] | None = None, options: dict[str, Any] | None = None
    ) -> AsyncIterator[Kept]:
        home = Home(tmp_path / "engine")
        program = home.install()
        environ = clean_environment()
        engine = find_engine(str(program), option=None, environ=environ, cwd=tmp_path)
        command = parse_command(
            [str(program), "-m", "none.gguf", "-np", "1", *words], engine.flags, environ
        )
        log = tmp_path / "log" / "engine.log"
        events: list[Event] = []
        incidents: list[Incident] = []
        supervisor = Supervisor(
            command,
            engine,
            PlainUpstream,
            kept_log := RotatingLog(log, 1 << 20),
            Options(tmp_path, **(options or {})),
            Hooks(event=events.append, incident=incidents.append, **(hooks or {})),
        )
        supervisor.start()
        try:
            yield Kept(supervisor, home, log, events, incidents)
        finally:
            await asyncio.wait_for(supervisor.stop(), 30)
            kept_log.close()

    return kept


def test_ready_is_a_completion_that_was_answered(keeping: Keeping) -> None:
    async def run() -> None:
        async with keeping() as kept:
            assert str(kept.state) == "starting"
            live = await kept.ready()
            accepted = [entry for entry in kept.home.ledger() if entry["what"] == "accepted"]
            assert [entry["path"] for entry in accepted] == ["/completion"]
            assert (live.generation, live.n_slots, live.n_ctx_slot) == (1, 1, 4096)
            assert live.defaults.top_k == 40
            assert str(kept.state) == "ready"
            assert kept.events == [Event.ready(kept.pid, kept.supervisor.view().ready_s or -1)]
        with pytest.raises(GaveUpError, match="stopped"):
            await kept.supervisor.serving()

    asyncio.run(run())


def test_it_is_started_where_nobody_else_gets_in(keeping: Keeping) -> None:
    async def run() -> None:
        words = ("--host", "0.0.0.0", "--port", "9", "--api-key", "sesame-open-1")  # noqa: S104
        async with keeping(*words) as kept:
            live = await kept.ready()
            address = live.upstream.address
            assert address.socket is not None
            assert address.socket.parent.stat().st_mode & 0o777 == 0o700
            (started,) = (entry for entry in kept.home.ledger() if entry["what"] == "start")
            argv = started["argv"]
            assert argv[argv.index("--host") + 1] == str(address.socket)
            assert not {"--port", "--api-key", "sesame-open-1", "9"} & {*argv}
            assert "sesame-open-1" not in " ".join(kept.supervisor.view().argv)
        assert not address.socket.parent.exists()

    asyncio.run(run())


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_death_is_an_incident_and_a_restart(keeping: Keeping, number: signal.Signals) -> None:
    async def run() -> None:
        async with keeping() as kept:
            first = await kept.ready()
            asked = kept.ask(first, "job:a:3")
            assert (await asked)[0] == 200
            os.kill(kept.pid, number)
            loss = await kept.supervisor.lost(1, "test")
            assert not loss.alive
            assert loss.blames_requests is (number is signal.SIGSEGV)
            second = await kept.after(1)
            assert second.generation == 2
            incident = kept.supervisor.incidents.get(loss.incident or "")
            assert incident is not None
            assert incident.signal == number.name
            assert incident.action is Recovery.RESTART
            assert incident.complete
            assert incident.down_s is not None
            assert [event.event for event in kept.events] == ["ready", "incident", "ready"]
            assert kept.supervisor.view().restarts == 1

    asyncio.run(run())


def test_a_connection_that_breaks_is_no_death(keeping: Keeping) -> None:
    async def run() -> None:
        async with keeping() as kept:
            first = await kept.ready()
            loss = await kept.supervisor.lost(first.generation, "test")
            assert loss.alive
            assert not kept.incidents

    asyncio.run(run())


def test_errors_of_its_own_while_it_says_that_it_is_healthy(keeping: Keeping) -> None:
    async def run() -> None:
        async with keeping() as kept:
            first = await kept.ready()
            kept.home.order(Order("accepted", "sick", "bad"))
            status, body = await kept.ask(first, "job:bad:3")
            assert status == 500
            assert await kept.supervisor.failed(1, status, body)
            await kept.after(1)
            (incident,) = kept.supervisor.incidents
            assert incident.verdict.kind is Kind.BACKEND
            assert "500" in incident.verdict.text

    asyncio.run(run())


def test_an_error_of_one_request_is_its_own(keeping: Keeping) -> None:
    async def run() -> None:
        async with keeping() as kept:
            first = await kept.ready()
            kept.home.order(Order("accepted", "500", "bad"))
            status, body = await kept.ask(first, "job:bad:3")
            assert status == 500
            assert not await kept.supervisor.failed(1, status, body)
            assert not kept.incidents

    asyncio.run(run())


def test_a_stopped_process_hangs_and_nobody_is_blamed(
    keeping: Keeping, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arriero.trial.watch._STOPPED_FOR", 0.2)

    async def run() -> None:
        async with keeping() as kept:
            await kept.ready()
            os.kill(kept.pid, signal.SIGSTOP)
            second = await kept.after(1)
            assert second.generation == 2
            (incident,) = kept.supervisor.incidents
            assert incident.verdict.kind is Kind.HANG
            assert "stopped" in incident.verdict.text

    asyncio.run(run())


def test_it_is_given_up_with_the_reason(keeping: Keeping) -> None:
    async def run() -> None:
        policy = Policy(restarts=2, seconds=600, first_pause=0.01)
        async with keeping(options={"policy": policy}) as kept:
            for generation in range(1, 4):
                await kept.after(generation - 1)
                os.kill(kept.pid, signal.SIGKILL)
                await kept.supervisor.lost(generation, "test")
            with pytest.raises(GaveUpError, match=r"restarted 2 times .* \(--restarts 2/600\)"):
                await kept.ready()
            assert kept.state is State.FAILED
            assert [one.action for one in kept.supervisor.incidents] == [
                Recovery.RESTART,
                Recovery.RESTART,
                Recovery.GIVE_UP,
            ]

    asyncio.run(run())


def test_answers_in_between_are_a_reason_to_go_on(keeping: Keeping) -> None:
    async def run() -> None:
        policy = Policy(restarts=1, seconds=600, first_pause=0.01)
        async with keeping(options={"policy": policy}) as kept:
            for generation in range(3):
                await kept.after(generation)
                kept.supervisor.progressed(generation + 1)
                os.kill(kept.pid, signal.SIGKILL)
                await kept.supervisor.lost(generation + 1, "test")
            assert (await kept.after(3)).generation == 4

    asyncio.run(run())


def test_a_load_that_fails_for_good_is_not_tried_for_ever(keeping: Keeping) -> None:
    async def run() -> None:
        async with keeping(options={"policy": Policy(first_pause=0.01)}) as kept:
            kept.home.order(
                Order(
                    "load",
                    "exit",
                    always=True,
                    log=(
                        "llama_model_load: error loading model: invalid magic characters: 'abcd'",
                    ),
                )
            )
            with pytest.raises(GaveUpError):
                await kept.ready()
            assert len([e for e in kept.home.ledger() if e["what"] == "start"]) == 0
            assert len(kept.supervisor.incidents.ids) <= 3

    asyncio.run(run())


ALLOCATION = (
    "ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate buffer of size 17179869184",
)


def test_after_a_failure_by_memory_the_smaller_command_runs(keeping: Keeping) -> None:
    def smaller(command: Any, failure: Any) -> Alternative | None:
        if command.value("-c") == "512":
            return None
        return Alternative(command.with_value("-c", "512"), Recovery.SMALLER, "-c 512")

    async def run() -> None:
        async with keeping(hooks={"choose": smaller}) as kept:
            first = await kept.ready()
            kept.home.order(Order("accepted", "abort", "big", log=ALLOCATION))
            asked = kept.ask(first, "job:big:3")
            loss = await kept.supervisor.lost(1, "test") if await _broke(asked) else None
            assert loss is not None
            assert loss.blames_requests
            await kept.after(1)
            (incident,) = kept.supervisor.incidents
            assert (incident.action, incident.change) == (Recovery.SMALLER, "-c 512")
            assert "512" in kept.supervisor.view().argv

    asyncio.run(run())


async def _broke(asked: asyncio.Task[Any]) -> bool:
    try:
        await asked
    except Exception:  # noqa: BLE001 - however it broke
        return True
    return False


def test_a_restart_that_is_asked_for_lets_requests_end(keeping: Keeping) -> None:
    left: list[int] = []

    async def leaving(live: Live) -> None:
        left.append(live.generation)

    async def run() -> None:
        async with keeping(hooks={"leaving": leaving}) as kept:
            await kept.ready()
            kept.supervisor.working(1)
            kept.supervisor.progressed(1)
            asked = asyncio.create_task(
                kept.supervisor.request_restart(
                    "memory grows", Condemned(Kind.STATE_GROWTH, "memory grows")
                )
            )
            await asyncio.sleep(0)
            held = asyncio.create_task(kept.supervisor.serving())
            await asyncio.sleep(0)
            assert not held.done()
            assert not left
            kept.supervisor.working(0)
            await asked
            assert (await held).generation == 2
            assert left == [1]
            (incident,) = kept.supervisor.incidents
            assert incident.verdict.kind is Kind.STATE_GROWTH

    asyncio.run(run())


def test_its_log_is_kept_without_keys(keeping: Keeping) -> None:
    async def run() -> None:
        async with keeping("--api-key", "sesame-open-1") as kept:
            live = await kept.ready()
            kept.home.order(Order("accepted", "kill", "x", log=("the key is sesame-open-1",)))
            await _broke(kept.ask(live, "job:x:3"))
            await kept.after(1)
            (incident,) = kept.supervisor.incidents
            assert "sesame" not in kept.log.read_text()
            assert "sesame" not in str(incident)
            assert any("the key is" in line for line in incident.log)
            assert kept.log.stat().st_mode & 0o777 == 0o600

    asyncio.run(run())
