"""The engine without Arriero before it, to compare with; workers; undisturbed answers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.conftest import engine_file
from tests.serve.load import Ask, Seen, all_of

READY_SECONDS: Final = 120.0


def surroundings(engine: Path) -> dict[str, str]:
    """The environment of an engine: its libraries, and no graphics driver."""
    return {
        **os.environ,
        "LD_LIBRARY_PATH": str(engine.parent),
        "GGML_VK_VISIBLE_DEVICES": "99",
    }


def engine_of(build: int) -> Path:
    """The llama-server of a build."""
    path = engine_file(build)
    if not path.is_file():
        sys.exit(f"no engine {build}: run `make engines` first")
    return path


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        port: int = made.getsockname()[1]
    return port


@contextlib.contextmanager
def direct(engine: Path, words: Sequence[str | Path], log: Path) -> Iterator[tuple[str, int]]:
    """The engine itself, once it answers: its URL and process."""
    url = f"http://127.0.0.1:{(port := free_port())}"
    argv = [engine, *words, "--host", "127.0.0.1", "--port", str(port)]
    with log.open("w") as out:
        process = subprocess.Popen(
            argv, env=surroundings(engine), stdout=out, stderr=subprocess.STDOUT
        )
    try:
        deadline = time.monotonic() + READY_SECONDS
        while not healthy(url):
            assert process.poll() is None, log.read_text()[-2000:]
            assert time.monotonic() < deadline, log.read_text()[-2000:]
            time.sleep(0.02)
        yield url, process.pid
    finally:
        process.kill()
        process.wait()


def healthy(url: str) -> bool:
    """Whether ``/health`` says ok."""
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=10) as answer:  # noqa: S310
            return bool(answer.status == 200)
    except OSError:
        return False


class Worker:
    """An RPC worker on a port of its own, which can be killed and started again."""

    def __init__(self, engine: Path, log: Path, env: Mapping[str, str] = {}) -> None:
        self.engine = engine
        self.log = log
        self.env = {**surroundings(engine), **env}
        self.port = free_port()
        self.start()

    def start(self) -> None:
        """Start it and wait until it listens."""
        server = self.engine.with_name("ggml-rpc-server")
        with self.log.open("a") as out:
            self.process = subprocess.Popen(
                [server, "-H", "127.0.0.1", "-p", str(self.port)],
                env=self.env, stdout=out, stderr=subprocess.STDOUT,
            )  # fmt: skip
        deadline = time.monotonic() + READY_SECONDS
        while True:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            assert time.monotonic() < deadline, self.log.read_text()[-2000:]
            time.sleep(0.05)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def undisturbed(
    engine: Path, words: Sequence[str | Path], asks: Sequence[Ask], log: Path
) -> list[Seen]:
    """Each answer of the engine itself, one after the other."""
    with direct(engine, words, log) as (url, _):
        return asyncio.run(all_of(url, asks, 1, keep=False))
