"""Contexts over a restart: what is saved and given back, and what a real engine makes of it."""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from arriero.gguf import write_model
from arriero.gguf.presets import tiny
from arriero.serve.contexts import Call, Contexts, Proof, Restored
from arriero.serve.http.interface import UpstreamLostError
from tests.gguf.serving import Served, serve
from tests.serve.model import small_model


class Slots:
    """Slots as the endpoints of a llama-server show them; files as it would write them."""

    def __init__(self, directory: Path, tokens: dict[int, int], each: int = 10) -> None:
        self.directory, self.tokens, self.each = directory, tokens, each
        self.task = 1
        self.busy: set[int] = set()
        self.asked: list[str] = []
        self.cut = 0
        self.dies = ""

    async def call(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        if path == "/slots":
            return 200, json.dumps([self.slot(n) for n in self.tokens]).encode()
        self.asked.append(path)
        number, action = int(path.split("/")[2].split("?")[0]), path.split("=")[1]
        target = self.directory / json.loads(body)["filename"]
        held = self.tokens[number]
        if action == self.dies:
            if action == "save":
                target.write_bytes(b"x")
            raise UpstreamLostError("gone", sent=True)
        if action == "save":
            target.write_bytes(b"x" * (held * self.each - self.cut))
            return 200, json.dumps({"n_saved": held, "n_written": held * self.each}).encode()
        return 200, json.dumps({"n_restored": target.stat().st_size // self.each}).encode()

    def slot(self, number: int) -> dict[str, object]:
        busy = number in self.busy
        held = self.tokens[number]
        return {
            "id": number,
            "is_processing": busy,
            "id_task": self.task,
            "n_prompt_tokens": held,
        }


def contexts(directory: Path, most: int = 10**9) -> Contexts:
    return Contexts(directory, most=most, each=10)


def files(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def test_idle_slots_are_saved_once_and_given_back(tmp_path: Path) -> None:
    slots, kept = Slots(tmp_path, {0: 500, 1: 300, 2: 9, 3: 400}), contexts(tmp_path)
    slots.busy = {3}
    assert asyncio.run(kept.save(slots.call)) == 800
    assert files(tmp_path) == {"slot-0.bin", "slot-1.bin"}
    asked = len(slots.asked)
    assert asyncio.run(kept.save(slots.call)) == 0
    assert len(slots.asked) == asked, "nothing changed, nothing is written"
    assert asyncio.run(kept.restore(slots.call, 4)) == Restored(2, 800, 8000)


def test_a_slot_that_went_on_is_saved_again_in_place_of_the_old_file(tmp_path: Path) -> None:
    slots, kept = Slots(tmp_path, {0: 500}), contexts(tmp_path)
    asyncio.run(kept.save(slots.call))
    slots.task, slots.tokens[0] = 2, 700
    assert asyncio.run(kept.save(slots.call)) == 200
    assert files(tmp_path) == {"slot-0.bin"}
    assert kept.saved[0].tokens == 700


def test_a_file_that_was_cut_off_is_not_kept_and_never_given_back(tmp_path: Path) -> None:
    slots, kept = Slots(tmp_path, {0: 500, 1: 500}), contexts(tmp_path)
    slots.cut = 1
    assert asyncio.run(kept.save(slots.call)) == 0
    assert files(tmp_path) == set()
    slots.cut = 0
    asyncio.run(kept.save(slots.call))
    (tmp_path / "slot-1.bin").write_bytes(b"x")
    slots.asked.clear()
    assert asyncio.run(kept.restore(slots.call, 2)).slots == 1
    assert slots.asked == ["/slots/0?action=restore"]
    assert files(tmp_path) == {"slot-0.bin"}


@pytest.mark.parametrize("action", ["save", "restore"])
def test_an_engine_that_crashes_of_it_is_never_asked_again(action: str, tmp_path: Path) -> None:
    slots, kept = Slots(tmp_path, {0: 500}), contexts(tmp_path)
    if action == "restore":
        asyncio.run(kept.save(slots.call))
    slots.dies = action
    asyncio.run(kept.save(slots.call) if action == "save" else kept.restore(slots.call, 1))
    kept.lost(crashed=True)
    assert action in kept.off
    assert files(tmp_path) == set()
    slots.dies, slots.task = "", 2
    asked = len(slots.asked)
    assert asyncio.run(kept.save(slots.call)) == 0
    assert asyncio.run(kept.restore(slots.call, 1)) == Restored()
    assert len(slots.asked) == asked


def test_a_kill_from_outside_is_not_blamed_on_a_save(tmp_path: Path) -> None:
    slots, kept = Slots(tmp_path, {0: 500}), contexts(tmp_path)
    asyncio.run(kept.save(slots.call))
    slots.task, slots.dies = 2, "save"
    asyncio.run(kept.save(slots.call))
    kept.lost(crashed=False)
    slots.dies = ""
    assert not kept.off
    assert files(tmp_path) == {"slot-0.bin"}
    assert asyncio.run(kept.restore(slots.call, 1)).tokens == 500


def test_a_crash_without_a_save_is_not_blamed_on_one(tmp_path: Path) -> None:
    slots, kept = Slots(tmp_path, {0: 500}), contexts(tmp_path)
    asyncio.run(kept.save(slots.call))
    kept.lost(crashed=True)
    assert not kept.off
    assert len(kept.saved) == 1


def test_all_files_together_are_bounded(tmp_path: Path) -> None:
    slots, kept = Slots(tmp_path, {0: 300, 1: 400, 2: 500}), contexts(tmp_path, most=7500)
    assert asyncio.run(kept.save(slots.call)) == 700
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 7500
    assert slots.asked == ["/slots/0?action=save", "/slots/1?action=save"], "not even tried"


def test_another_command_and_the_end_leave_no_file(tmp_path: Path) -> None:
    slots, kept = Slots(tmp_path, {0: 500}), contexts(tmp_path)
    asyncio.run(kept.save(slots.call))
    kept.changed()
    assert asyncio.run(kept.restore(slots.call, 1)) == Restored()
    asyncio.run(kept.save(slots.call))
    kept.close()
    assert files(tmp_path) == set()


def test_fewer_slots_than_files(tmp_path: Path) -> None:
    slots, kept = Slots(tmp_path, {0: 500, 1: 300}), contexts(tmp_path)
    asyncio.run(kept.save(slots.call))
    assert asyncio.run(kept.restore(slots.call, 1)) == Restored(1, 500, 5000)
    assert files(tmp_path) == {"slot-0.bin"}


def answered(cached: int, read: int) -> bytes:
    return b'data: {"timings":{"cache_n":%d,"prompt_n":%d,"x":1}}\n\n' % (cached, read)


def told(kept: Contexts) -> Proof:
    return kept.proof


def test_only_what_was_reused_is_believed(tmp_path: Path) -> None:
    slots, kept = Slots(tmp_path, {0: 500}), contexts(tmp_path)
    asyncio.run(kept.save(slots.call))
    kept.heard(answered(0, 500))
    assert told(kept) is Proof.NONE, "nothing was restored"
    asyncio.run(kept.restore(slots.call, 1))
    kept.heard(answered(0, 5))
    assert told(kept) is Proof.NONE, "a short prompt continues nothing"
    kept.heard(answered(480, 25))
    assert told(kept) is Proof.SHOWN
    for _ in range(3):
        assert not kept.off
        asyncio.run(kept.restore(slots.call, 1))
        kept.heard(answered(0, 505))
        kept.heard(answered(480, 25))  # its own, by now
        assert told(kept) is Proof.REFUTED
    assert "read again" in kept.off
    assert files(tmp_path) == set()


def test_an_engine_without_the_endpoint(tmp_path: Path) -> None:
    async def call(method: str, path: str, body: bytes) -> tuple[int, bytes]:
        return 501, b'{"error":{"code":501}}'

    kept = contexts(tmp_path)
    assert asyncio.run(kept.save(call)) == 0
    assert kept.saved == ()


# --- the real engine ------------------------------------------------------------------------------


def asking(server: Served) -> Call:
    async def call(method: str, path: str, body: bytes) -> tuple[int, bytes]:
        return await asyncio.to_thread(ask, server, method, path, body)

    return call


def ask(server: Served, method: str, path: str, body: bytes) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    try:
        connection.request(method, path, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def complete(server: Served, prompt: list[int]) -> bytes:
    body = {"prompt": prompt, "n_predict": 2, "temperature": 0, "id_slot": 0}
    status, answer = ask(server, "POST", "/completion", json.dumps(body).encode())
    assert status == 200, answer
    return answer


PROMPT = [(7919 * n) % 200 + 3 for n in range(300)]


@dataclass(frozen=True)
class Case:
    """A model, and what an engine that was killed and started again makes of its saved slot."""

    model: str
    flags: tuple[str, ...]
    believed: Proof


def over_a_kill(engine: Path, model: Path, flags: tuple[str, ...], home: Path) -> Contexts:
    """Ask, save, kill the engine, start it again, restore, ask for more of the same."""
    kept = Contexts(home)
    more = ("-np", "2", "-c", "2048", "--no-warmup", "--slot-save-path", str(home), *flags)
    with serve(engine, model, *more) as server:
        complete(server, PROMPT)
        assert asyncio.run(kept.save(asking(server))) > 290
    kept.lost(crashed=False)
    with serve(engine, model, *more) as server:
        assert asyncio.run(kept.restore(asking(server), 2)).tokens > 290
        held = kept.saved[0].tokens
        assert kept.waits_for_proof
        kept.heard(complete(server, PROMPT + [9] * (held - len(PROMPT)) + [5, 6, 7]))
    return kept


@pytest.mark.engine
@pytest.mark.parametrize("build", [10068, pytest.param(10434, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(Case("llama", (), Proof.SHOWN), id="attention"),
        pytest.param(Case("gemma3", (), Proof.REFUTED), id="window"),
        pytest.param(Case("gemma3", ("--swa-full",), Proof.SHOWN), id="full-window"),
    ],
)
def test_cache_n_of_the_next_answer_tells(
    case: Case, build: int, tmp_path: Path, engine_path: Callable[[int], Path]
) -> None:
    small = case.model == "gemma3"
    model = small_model() if small else write_model(tmp_path / "m.gguf", tiny(case.model))
    home = tmp_path / "kept"
    home.mkdir(mode=0o700)
    kept = over_a_kill(engine_path(build), model, case.flags, home)
    assert kept.proof is case.believed
    kept.close()
    assert files(home) == set()
