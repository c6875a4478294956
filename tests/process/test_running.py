"""Starting, watching and ending real programs."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from arriero.base.errors import ArrieroError, NotFoundError
from arriero.base.words import LimitKind
from arriero.process import (
    Exit,
    Limit,
    ProcessError,
    clean_environment,
    free_port,
    run,
    run_at_once,
    scratch_directory,
    start,
)
from tests.process import watching

pytestmark = pytest.mark.timeout(300)
HERE = Path(__file__).parent
ENV = dict(os.environ)


def sh(script: str) -> list[str]:
    return ["sh", "-c", script]


def python(script: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", script]


def collect(argv: list[str], env: Mapping[str, str] = ENV) -> tuple[Exit | None, list[str]]:
    lines: list[str] = []
    with start(argv, env=env, on_line=lines.append) as running:
        return running.wait(60), lines


def test_both_streams_arrive_in_order_with_the_exit_status() -> None:
    ended, lines = collect(sh("echo one; echo two >&2; printf three; exit 7"))
    assert ended == Exit(7)
    assert lines == ["one", "two", "three"]


def test_a_signal_is_a_negative_status() -> None:
    assert collect(sh("kill -ABRT $$"))[0] == Exit(-signal.SIGABRT)


def test_standard_input_is_empty_and_the_environment_is_the_given_one() -> None:
    _, lines = collect(
        sh("wc -c; echo $GIVEN; env | cut -d= -f1"), {"GIVEN": "yes", "PATH": "/bin"}
    )
    assert lines[:2] == ["0", "yes"]
    assert set(lines[2:]) <= {"GIVEN", "PATH", "ARRIERO_GUARD", "PWD", "OLDPWD", "SHLVL", "_"}


def test_signals_and_session_are_as_a_shell_would_give_them(tmp_path: Path) -> None:
    """Nothing that Arriero ignores or blocks is handed on, and Ctrl-C there does not come here."""
    old = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    try:
        _, lines = collect(
            python(
                "import os; s = open('/proc/self/status').read().split('\\n')\n"
                "print(*(l.split()[1] for l in s if l.startswith(('SigBlk', 'SigIgn'))))\n"
                "print(os.getsid(0) == os.getpid())"
            )
        )
    finally:
        signal.signal(signal.SIGHUP, old)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})
    blocked, ignored = (int(word, 16) for word in lines[0].split())
    # Python itself ignores SIGPIPE and SIGXFSZ when it starts; make leaves 32 and 33, which belong
    # to the C library and which nobody may set, ignored.
    own = 1 << (signal.SIGPIPE - 1) | 1 << (signal.SIGXFSZ - 1) | 1 << 31 | 1 << 32
    assert (blocked, ignored & ~own, lines[1]) == (0, 0, "True")


def test_no_descriptor_of_arriero_reaches_the_command(tmp_path: Path) -> None:
    with (tmp_path / "open").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        _, lines = collect(sh("ls /proc/self/fd | wc -l"))
    assert lines == ["4"]  # 0, 1, 2 and the directory that ls reads


def test_what_the_command_leaves_behind_is_ended_with_it(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    ended, lines = collect([sys.executable, str(HERE / "tree.py"), str(pids), "exit"])
    assert (ended, lines) == (Exit(0), ["ready"])
    assert watching.alive(watching.noted(pids)) == []


def test_stop_asks_first() -> None:
    lines: list[str] = []
    script = "trap 'echo bye; exit 5' TERM; echo up; while :; do sleep 0.05; done"
    with start(sh(script), env=ENV, on_line=lines.append) as running:
        assert watching.eventually(lambda: lines == ["up"])
        assert running.poll() is None
        assert running.stop(30) == Exit(5)
        assert lines == ["up", "bye"]
        assert running.stop(30) == Exit(5)


def test_stop_wakes_a_stopped_command_and_kills_a_deaf_one() -> None:
    with start(sh("sleep 600"), env=ENV, on_line=print) as running:
        running.signal(signal.SIGSTOP)
        assert running.stop(30) == Exit(-signal.SIGTERM)
    deaf = sh("trap '' TERM; echo up; while :; do sleep 0.05; done")
    lines: list[str] = []
    with start(deaf, env=ENV, on_line=lines.append) as running:
        assert watching.eventually(lambda: lines == ["up"])
        assert running.stop(0.1) == Exit(-signal.SIGKILL)


def test_leaving_the_context_ends_the_tree_and_the_scratch_directory(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    lines: list[str] = []
    command = [sys.executable, str(HERE / "tree.py"), str(pids)]
    with (  # noqa: PT012 - what raises is the body of the other context
        pytest.raises(KeyError),
        start(command, env=ENV, on_line=lines.append, scratch=tmp_path / "scratch") as running,
    ):
        assert watching.eventually(lambda: lines == ["ready"])
        (tmp_path / "scratch" / "file").write_text("x")
        raise KeyError
    assert running.poll() == Exit(-signal.SIGKILL)
    assert watching.alive(watching.noted(pids)) == []
    assert not (tmp_path / "scratch").exists()


def test_a_scratch_directory_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    with pytest.raises(ProcessError, match="not empty"):
        start(sh("true"), env=ENV, on_line=print, scratch=tmp_path)
    assert (tmp_path / "precious").exists()


def test_a_scratch_directory_of_its_own(tmp_path: Path) -> None:
    with scratch_directory(tmp_path) as path:
        (path / "model.gguf").write_bytes(b"GGUF")
        assert path.parent == tmp_path
        assert path.name.startswith("arriero-")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ProcessError, match="scratch"), scratch_directory(Path("/proc/nowhere")):
        pass


def test_a_flood_neither_blocks_the_command_nor_grows(tmp_path: Path) -> None:
    """A reader that stands still loses old lines, never the last ones."""
    import threading

    go = threading.Event()
    lines: list[str] = []

    def slow(line: str) -> None:
        go.wait()
        lines.append(line)

    script = "import sys\nfor i in range(400000): sys.stdout.write(f'{i:0100d}\\n')"
    log = tmp_path / "log"
    with start(python(script), env=ENV, on_line=slow, log_file=log) as running:
        assert watching.eventually(lambda: log.stat().st_size >= 400000 * 101)
        go.set()
        assert running.wait(60) == Exit(0)
        assert running.dropped > 20 << 20
    assert lines[-1] == f"{399999:0100d}"
    assert len(lines) < 200000


def test_an_exception_of_the_reader_is_told_to_who_waits() -> None:
    def refuse(line: str) -> None:
        raise LookupError(line)

    with start(sh("echo a; echo b"), env=ENV, on_line=refuse) as running:
        with pytest.raises(LookupError, match="a"):
            running.wait(60)
        assert running.poll() == Exit(0)


def test_memory_is_that_of_the_tree_and_peaks_remain() -> None:
    hog = (
        "import time; x = bytearray(b'x' * (80 << 20)); print('full', flush=True); time.sleep(600)"
    )
    command = [*python(f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {hog!r}])")]
    lines: list[str] = []
    with start(command, env=ENV, on_line=lines.append) as running:
        assert watching.eventually(lambda: lines == ["full"])
        assert watching.eventually(lambda: (running.memory().anonymous or 0) > 80 << 20)
        now = running.memory()
        assert now.rss is not None
        assert now.address_space is not None
        assert now.address_space_peak is not None
        assert now.rss > 80 << 20
        assert now.address_space_peak >= now.address_space > 0
        assert (now.threads or 0) >= 2
        assert now.cgroup is None
    after = running.memory()
    assert after.rss is None
    assert (after.anonymous_peak or 0) > 80 << 20


def test_the_peak_of_a_short_life_is_seen() -> None:
    with start(python("x = bytearray(b'x' * (64 << 20))"), env=ENV, on_line=print) as running:
        running.wait(60)
        assert (running.memory().rss_peak or 0) > 64 << 20


HUNGRY = "x = [bytearray(b'x' * (16 << 20)) for i in range(32)]"


def test_an_address_space_limit_makes_an_allocation_fail() -> None:
    lines: list[str] = []
    limit = Limit(256 << 20, LimitKind.ADDRESS_SPACE)
    with start(python(HUNGRY), env=ENV, on_line=lines.append, limit=limit) as running:
        assert running.wait(60) == Exit(1)
        assert lines[-1] == "MemoryError"
        peak = running.memory().address_space_peak
        assert peak is not None
        assert peak <= limit.bytes


def test_a_cgroup_limit_makes_the_kernel_kill_and_says_so() -> None:
    before = watching.own_cgroups()
    limit = Limit(128 << 20, LimitKind.CGROUP)
    try:
        running = start(python(HUNGRY), env=ENV, on_line=print, limit=limit)
    except ProcessError as error:
        pytest.skip(error.message)
    with running:
        assert running.wait(60) == Exit(-signal.SIGKILL, oom_kills=1)
        peak = running.memory().cgroup_peak
        assert peak is not None
        assert 120 << 20 < peak <= limit.bytes
    assert watching.own_cgroups() <= before


def test_usage_of_the_limits_cgroup_is_sampled() -> None:
    hog = (
        "import time; x = bytearray(b'x' * (32 << 20)); print('full', flush=True); time.sleep(600)"
    )
    lines: list[str] = []
    limit = Limit(128 << 20, LimitKind.CGROUP)
    try:
        running = start(python(hog), env=ENV, on_line=lines.append, limit=limit)
    except ProcessError as error:
        pytest.skip(error.message)
    with running:
        assert watching.eventually(lambda: lines == ["full"])
        assert (running.memory().cgroup or 0) > 32 << 20
        assert running.stop(30) == Exit(-signal.SIGTERM, oom_kills=0)


@pytest.mark.parametrize("size", [0, -1])
def test_an_absurd_limit_is_refused(size: int) -> None:
    with pytest.raises(ProcessError, match="above zero"):
        start(sh("true"), env=ENV, on_line=print, limit=Limit(size, LimitKind.ADDRESS_SPACE))


def write(path: Path, content: bytes, mode: int = 0o755) -> Path:
    path.write_bytes(content)
    path.chmod(mode)
    return path


def damaged_interpreter(tmp_path: Path) -> Path:
    """A real program whose ELF interpreter is named differently."""
    original = Path("/bin/true").read_bytes()
    damaged = original.replace(b"/ld-linux-", b"/ld-muslx-")
    if damaged == original:
        pytest.skip("no program here names ld-linux")
    return write(tmp_path / "musl", damaged)


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (lambda tmp: tmp / "absent", NotFoundError, "no program .*absent"),
        (lambda tmp: "no-such-llama-server", NotFoundError, "no program no-such-llama-server in"),
        (lambda tmp: write(tmp / "plain", b"\x7fELF", 0o644), ProcessError, "permission denied"),
        (lambda tmp: tmp, ProcessError, "it is a directory"),
        (lambda tmp: write(tmp / "torn", b"\x7fELF\x02\x01"), ProcessError, "not a program for"),
        (lambda tmp: write(tmp / "empty", b""), ProcessError, "not a program for"),
        (
            lambda tmp: write(tmp / "s", b"#!/no/such/sh\n"),
            ProcessError,
            "its interpreter /no/such/",
        ),
        (damaged_interpreter, ProcessError, "its interpreter /lib.*/ld-muslx-"),
    ],
)
def test_a_program_that_cannot_be_executed_is_told_by_name_and_reason(
    tmp_path: Path, make: Callable[[Path], Path | str], kind: type[ArrieroError], message: str
) -> None:
    program = make(tmp_path)
    with pytest.raises(kind, match=message):
        start([program], env=ENV, on_line=print)
    with pytest.raises(kind, match=message):
        run([program], env=ENV, timeout=60)


def test_other_reasons_not_to_start(tmp_path: Path) -> None:
    with pytest.raises(ProcessError, match="too long"):
        start(["true", "x" * (1 << 20)], env=ENV, on_line=print)
    with pytest.raises(ProcessError, match=r"cannot enter .*nowhere"):
        start(["true"], env=ENV, on_line=print, cwd=tmp_path / "nowhere")
    with pytest.raises(ProcessError, match="NUL"):
        start(["true", "a\0b"], env=ENV, on_line=print)
    with pytest.raises(ProcessError, match="empty"):
        start([], env=ENV, on_line=print)
    with pytest.raises(ProcessError, match="log file"):
        start(["true"], env=ENV, on_line=print, log_file=tmp_path / "no" / "log")


def test_run_answers_and_leaves_nothing() -> None:
    done = run(sh("echo out; echo err >&2; sleep 600 & exit 3"), env=ENV, timeout=60)
    assert (done.status, done.stdout, done.stderr, done.truncated) == (3, "out\n", "err\n", False)


def test_run_keeps_only_so_much_and_replaces_what_is_no_text() -> None:
    done = run(
        python("import os; os.write(1, b'\\xff' * 99999)"), env=ENV, timeout=60, max_output=9
    )
    assert (done.stdout, done.truncated) == ("\N{REPLACEMENT CHARACTER}" * 9, True)


def test_run_ends_the_tree_at_the_time_limit(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    command = [sys.executable, str(HERE / "tree.py"), str(pids)]
    with pytest.raises(ProcessError, match="did not answer within 1 s") as caught:
        run(command, env=ENV, timeout=1)
    assert caught.value.id == "timeout"
    assert watching.alive(watching.noted(pids)) == []


def test_commands_at_once_run_side_by_side(tmp_path: Path) -> None:
    """The first waits for the second, which says more than a pipe holds."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    first, second = run_at_once(
        [sh(f"cat {fifo}"), sh(f"echo heard > {fifo}; head -c 300000 /dev/zero; exit 3")],
        env=ENV,
        timeout=60,
    )
    assert (first.status, first.stdout) == (0, "heard\n")
    assert (second.status, len(second.stdout)) == (3, 300000)


def test_of_commands_at_once_all_end_where_one_fails(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    command = [sys.executable, str(HERE / "tree.py"), str(pids)]
    with pytest.raises(NotFoundError):
        run_at_once([command, [str(tmp_path / "absent")]], env=ENV, timeout=60)
    assert not pids.exists() or watching.alive(watching.noted(pids)) == []
    with pytest.raises(ProcessError, match="did not answer"):
        run_at_once([sh("true"), command], env=ENV, timeout=1)
    assert watching.alive(watching.noted(pids)) == []


def test_the_environment_is_the_users_without_what_is_ours() -> None:
    environ = {"ARRIERO_ENGINE": "x", "NOTIFY_SOCKET": "y", "LLAMA_ARG_CTX_SIZE": "1", "PATH": "/"}
    assert clean_environment(environ) == {"LLAMA_ARG_CTX_SIZE": "1", "PATH": "/"}


def test_a_free_port_can_be_bound() -> None:
    import socket

    with socket.socket() as server:
        server.bind(("127.0.0.1", free_port()))


@pytest.mark.engine
@pytest.mark.parametrize("build", [10068, 10092, 10434])
def test_the_real_engine_answers(engine_path: Callable[[int], Path], build: int) -> None:
    engine = engine_path(build)
    env = {**ENV, "LD_LIBRARY_PATH": str(engine.parent)}
    done = run([engine, "--version"], env=env, timeout=60)
    assert done.status == 0
    assert "version:" in done.stdout + done.stderr


@pytest.mark.engine
def test_a_real_server_is_stopped_gracefully(
    engine_path: Callable[[int], Path], tmp_path: Path
) -> None:
    engine = engine_path(10434)
    env = {**ENV, "LD_LIBRARY_PATH": str(engine.parent)}
    lines: list[str] = []
    command = [str(engine), "--models-dir", str(tmp_path), "--port", str(free_port())]
    with start(command, env=env, on_line=lines.append) as running:
        assert watching.eventually(lambda: any("listening" in line for line in lines))
        assert (running.memory().threads or 0) > 1
        ended = running.stop(30)
    assert ended.status == 0
