"""Nothing outlives Arriero, however it ends and whatever the command does."""

from __future__ import annotations

import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from arriero.process import free_port
from tests.process import watching

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc"),
    pytest.mark.timeout(300),
]

HERE = Path(__file__).parent
TREE = [sys.executable, str(HERE / "tree.py")]


@dataclass
class Parent:
    """One `parent.py` and the means to see what it left."""

    tmp: Path
    token: str = field(default_factory=lambda: f"ARRIERO_TEST_TOKEN={secrets.token_hex(8)}")
    process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        self.scratch = self.tmp / "scratch"

    @property
    def pids(self) -> Path:
        return self.tmp / "pids"

    def begin(
        self, command: list[str], *, limit: int = 0, env: dict[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        name, _, value = self.token.partition("=")
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "parent.py"), str(self.scratch), str(limit), *command],
            env={**os.environ, **(env or {}), name: value},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # In a shell's background SIGINT is ignored, and would be until Python is up.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        return self.process

    def until(self, word: str) -> None:
        assert self.process is not None
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.strip() == word.encode():
                return
        pytest.fail(f"the parent ended before it printed {word!r}")

    def left(self) -> list[int]:
        return watching.carrying(self.token) + watching.alive(watching.noted(self.pids))

    def end(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)
        self.process.wait(30)

    def clean(self) -> None:
        """After a test, whatever became of it."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            assert self.process.stdout is not None
            self.process.stdout.close()
        for pid in self.left():
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def parent(tmp_path: Path) -> Iterator[Parent]:
    one = Parent(tmp_path)
    yield one
    one.clean()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_killed_arriero_leaves_no_process_and_no_file(parent: Parent, number: int) -> None:
    parent.begin([*TREE, str(parent.pids)])
    parent.until("ready")
    assert watching.eventually(lambda: len(parent.left()) > 6)
    (parent.scratch / "deep").mkdir()
    (parent.scratch / "deep" / "slot.bin").write_bytes(b"x" * 100)
    parent.end(number)
    assert watching.eventually(lambda: not parent.left())
    assert watching.eventually(lambda: not parent.scratch.exists())


def test_a_killed_arriero_leaves_no_cgroup(parent: Parent) -> None:
    before = watching.own_cgroups()
    process = parent.begin([*TREE, str(parent.pids)], limit=256 << 20)
    if not watching.eventually(
        lambda: bool(watching.own_cgroups() - before) or bool(process.poll())
    ):
        pytest.fail("no cgroup appeared")
    if process.poll():
        pytest.skip("no memory cgroup may be made here")
    parent.until("ready")
    parent.end(signal.SIGKILL)
    assert watching.eventually(lambda: not parent.left())
    assert watching.eventually(lambda: watching.own_cgroups() <= before)


@pytest.mark.skipif(shutil.which("gdb") is None, reason="needs gdb")
def test_a_process_held_by_a_debugger_ends_too(parent: Parent) -> None:
    """As when the engine's abort lets gdb print its backtrace."""
    script = "sleep 600 & exec gdb -q -batch -nx -ex 'shell echo; echo ready; sleep 600' -p $!"
    parent.begin(["sh", "-c", script])
    parent.until("ready")
    parent.end(signal.SIGKILL)
    assert watching.eventually(lambda: not parent.left())


def guard_of(parent: Parent) -> int:
    for pid in watching.carrying(parent.token):
        if b"guard.py" in Path(f"/proc/{pid}/cmdline").read_bytes():
            return pid
    pytest.fail("no guard")


def test_a_guard_that_is_asked_to_end_stays_at_its_post(parent: Parent) -> None:
    parent.begin([*TREE, str(parent.pids)])
    parent.until("ready")
    guard = guard_of(parent)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        os.kill(guard, number)
    parent.end(signal.SIGKILL)
    assert watching.eventually(lambda: not parent.left())


def test_a_killed_guard_takes_the_command_with_it(parent: Parent) -> None:
    """Arriero itself then ends what carries the guard's marker."""
    parent.begin(["sh", "-c", "setsid sleep 600 & echo ready; wait"])
    parent.until("ready")
    assert parent.process is not None
    guard = guard_of(parent)
    os.kill(guard, signal.SIGKILL)
    left = {parent.process.pid, guard}
    assert watching.eventually(lambda: set(parent.left()) <= left)
    parent.end(signal.SIGINT)
    assert watching.eventually(lambda: not parent.left())
    assert not parent.scratch.exists()


def kill_at_random(parent: Parent, engine: Path, chance: random.Random) -> None:
    """One run of a router that needs no model, ended at a random moment of its life."""
    port = free_port()
    models = parent.tmp / "models"
    models.mkdir(exist_ok=True)
    command = [str(engine), "--models-dir", str(models), "--port", str(port)]
    parent.begin(command, env={"LD_LIBRARY_PATH": str(engine.parent)})
    time.sleep(chance.uniform(0, 0.8))
    parent.end(chance.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGINT]))
    assert parent.process is not None
    assert parent.process.stdout is not None
    parent.process.stdout.close()
    assert watching.eventually(lambda: not parent.left())
    assert watching.eventually(lambda: not parent.scratch.exists())
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))


@pytest.mark.engine
@pytest.mark.parametrize("build", [10068, 10434])
def test_a_server_killed_at_random_moments(
    parent: Parent, engine_path: Callable[[int], Path], build: int
) -> None:
    chance = random.Random(build)
    for _ in range(4):
        kill_at_random(parent, engine_path(build), chance)


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_two_hundred_servers_killed_at_random_moments(
    parent: Parent, engine_path: Callable[[int], Path]
) -> None:
    chance = random.Random(200)
    for _ in range(200):
        kill_at_random(parent, engine_path(10434), chance)
