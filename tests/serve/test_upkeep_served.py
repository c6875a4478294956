"""Upkeep as a client sees it: a conversation over a kill, and memory that would run out."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from arriero.base.sizes import MIB
from arriero.gguf import write_model
from arriero.gguf.presets import tiny
from arriero.process import cgroup
from tests.process import watching
from tests.serve.front import Front
from tests.serve.model import small_model

pytestmark = [
    pytest.mark.engine,
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc"),
]
WORDS = "Tell me about the mules of the high pass and who leads them. "


def ask(front: Front, path: str, body: dict[str, Any]) -> dict[str, Any]:
    connection = HTTPConnection("127.0.0.1", front.port, timeout=120)
    try:
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        got: dict[str, Any] = json.load(response)
        assert response.status == 200, got
        return got
    finally:
        connection.close()


def test_a_conversation_goes_on_after_a_kill(
    tmp_path: Path, engine_path: Callable[[int], Path]
) -> None:
    command: list[str | Path] = [engine_path(10434), "-m", small_model()]
    command += ["-np", "1", "-c", "2048", "--swa-full"]
    with Front(tmp_path, [*command, "--port", "0"]) as front:
        said: list[dict[str, str]] = [{"role": "user", "content": WORDS * 15}]
        asked = {"max_tokens": 8, "temperature": 0}
        first = ask(front, "/v1/chat/completions", {**asked, "messages": said})
        assert watching.eventually(lambda: any((tmp_path / "scratch").glob("*/slot-0.bin")))
        os.kill(front.engine_pid(), signal.SIGKILL)
        said.append(first["choices"][0]["message"] | {"role": "assistant"})
        said.append({"role": "user", "content": "And then?"})
        again = ask(front, "/v1/chat/completions", {**asked, "messages": said})
        assert again["timings"]["cache_n"] > 200
        assert again["timings"]["prompt_n"] < 60
    assert not [*(tmp_path / "scratch").glob("*/slot-*")]


@pytest.fixture
def group() -> Iterator[Callable[[int, int], Path]]:
    """Puts a process, and what it starts, into a memory cgroup with a limit."""
    here = cgroup.own()
    made: list[Path] = []

    def put(pid: int, limit: int) -> Path:
        assert here is not None
        path = here.path / f"arriero-test-{os.getpid()}"
        try:
            path.mkdir()
            made.append(path)
            (path / here.limit_file).write_text(str(limit))
            (path / "cgroup.procs").write_text(str(pid))
        except OSError as error:
            pytest.skip(f"no memory cgroup may be made here: {error}")
        return path

    if here is None:
        pytest.skip("no memory cgroup here")
    yield put
    assert watching.eventually(lambda: not any((one / "cgroup.procs").read_text() for one in made))
    for path in made:
        path.rmdir()


def kills(path: Path) -> int:
    """How often the kernel has killed in it."""
    name = "memory.oom_control" if (path / "memory.oom_control").exists() else "memory.events"
    lines = (path / name).read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))


def test_an_engine_that_grows_is_restarted_before_the_kernel_kills_it(
    tmp_path: Path, engine_path: Callable[[int], Path], group: Callable[[int, int], Path]
) -> None:
    """Each prompt leaves 32 MiB; 45 of them are twice what the cgroup has for them."""
    shape = tiny("llama", heads=32, heads_kv=32, head_dim=128)
    model = write_model(tmp_path / "m.gguf", shape, weights="zeros")
    flags = ["-np", "1", "-c", "1024", "-cram", "8000", "-ctk", "f32", "-ctv", "f32"]
    flags += ["-fa", "off", "-t", "1", "--no-warmup", "--port", "0"]
    options = ["--gates", "off", "--memory-reserve", "300MiB", "--keep-context", "off"]
    front = Front(tmp_path, [engine_path(10434), "-m", model, *flags], options, start=False)
    with front:
        path = group(front.pid, 1200 * MIB)
        front.url = str(front.event("listening")["url"])
        front.event("ready")
        for number in range(45):
            prompt = [(number * 131 + n * n) % 200 + 3 for n in range(256)]
            ask(front, "/completion", {"prompt": prompt, "n_predict": 1})
            time.sleep(0.3)  # as people ask; the watch looks every two seconds
        assert kills(path) == 0
        verdicts = [event["verdict"] for event in front.events if event["event"] == "incident"]
        assert verdicts
        assert {verdict["kind"] for verdict in verdicts} == {"state_growth"}
        assert front.count("ready") == 1 + len(verdicts)
