"""Forty turns of a chat: what a real server's checkpoints take beside the plan's line."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from arriero.base.sizes import MIB
from arriero.base.words import Component
from arriero.gguf import write_model
from arriero.gguf.presets import LADDER_RECURRENT, tiny
from arriero.memory.plan.host import CHECKPOINTS_OF_A_TURN
from tests.gguf.serving import Served, serve
from tests.memory.planning import plan

pytestmark = [pytest.mark.engine, pytest.mark.slow]

SHAPES = {
    "recurrent": replace(LADDER_RECURRENT, layers=4),
    "hybrid": tiny(
        "qwen35", layers=8, attention_every=4, embedding=128,
        ssm_state=128, ssm_inner=4096, ssm_heads=32, ssm_groups=16,
    ),
}  # fmt: skip
FLAGS = "-c 8192 -np 1 -cram 0"
TURNS = 40
TOLERANCE = 2 * MIB
"""A sixth of the smaller checkpoint, so that one more or less is seen. Text of the chat, the log
and pages that the heap keeps took 1.4 MiB in 40 turns."""


def chat(server: Served, model: Path, turns: int) -> list[tuple[int, int, int]]:
    """After each turn: checkpoints made in it, checkpoints kept, anonymous memory in bytes."""
    (engine,) = (
        child for child in psutil.Process().children() if str(model) in child.cmdline()
    )  # fmt: skip
    said: list[dict[str, str]] = []
    told: list[tuple[int, int, int]] = []
    for n in range(turns):
        seen = len(server.log)
        said.append({"role": "user", "content": f"turn {n:03}: and what happened then?"})
        answer = server.post("/v1/chat/completions", {"messages": said, "max_tokens": 8})
        said.append({"role": "assistant", "content": answer["choices"][0]["message"]["content"]})
        # the answer may be here before the log's own thread has written what came before it
        deadline = time.monotonic() + 60
        while "all slots are idle" not in (log := server.log[seen:]):
            assert time.monotonic() < deadline, log[-2000:]
            time.sleep(0.02)
        made = re.findall(r"created context checkpoint (\d+) of", log)
        status = Path(f"/proc/{engine.pid}/status").read_text()
        anonymous = int(status.partition("RssAnon:")[2].split()[0]) << 10
        told.append((len(made), int(made[-1]), anonymous))
    return told


def planned(model: Path, args: str, build: int) -> int:
    """Bytes of the line."""
    (line,) = (
        b for b in plan(model, args, build=build).buffers if b.component is Component.CHECKPOINTS
    )  # fmt: skip
    assert line.bytes is not None
    return line.bytes


@pytest.mark.timeout(900)
@pytest.mark.parametrize("build", [10068, 10434])
@pytest.mark.parametrize("kind", SHAPES)
def test_a_chat_grows_as_planned_until_the_line_is_reached(
    kind: str,
    build: int,
    tmp_path: Path,
    engine_path: Callable[[int], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MALLOC_ARENA_MAX", "1")
    model = write_model(tmp_path / f"{kind}.gguf", SHAPES[kind])
    args = f"{FLAGS} --checkpoint-min-step 0"
    line, each = planned(model, args, build), planned(model, f"{args} -ctxcp 1", build)
    assert line == 32 * each
    fixed = ("-t", "1", "-tb", "1", "--no-warmup")
    with serve(engine_path(build), model, *args.split(), *fixed) as server:
        (_, one, start), *turns = chat(server, model, TURNS)
    assert one == 1
    for made, kept, anonymous in turns:
        assert 1 < made <= CHECKPOINTS_OF_A_TURN
        assert anonymous - start == pytest.approx((kept - one) * each, abs=TOLERANCE)
    assert turns[-1][1] == 32
    assert turns[-1][2] - start + each == pytest.approx(line, abs=TOLERANCE)


@pytest.mark.timeout(900)
def test_with_its_own_spacing_a_server_keeps_those_of_the_last_turn(
    tmp_path: Path, engine_path: Callable[[int], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MALLOC_ARENA_MAX", "1")
    model = write_model(tmp_path / "hybrid.gguf", SHAPES["hybrid"])
    each = planned(model, f"{FLAGS} -ctxcp 1", 10434)
    fixed = ("-t", "1", "-tb", "1", "--no-warmup")
    with serve(engine_path(10434), model, *FLAGS.split(), *fixed) as server:
        (_, one, start), *turns = chat(server, model, TURNS // 2)
    for _, kept, anonymous in turns:
        assert kept <= one + CHECKPOINTS_OF_A_TURN
        # the heap may hold one that is gone until another takes its place
        assert anonymous - start < CHECKPOINTS_OF_A_TURN * each + TOLERANCE
