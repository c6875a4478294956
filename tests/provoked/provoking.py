"""Make the real engine fail in one known way, through the product's own trial.

A cause is always real: a limit the kernel keeps, a signal, a worker that dies, a file that is cut.
Limits come from what the same engine took on this machine moments before, since the C library, the
number of processors and of threads move address space from machine to machine.
"""

from __future__ import annotations

import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from arriero.base.redact import Redactor
from arriero.base.words import Evidence, LimitKind
from arriero.command import builtin_flags, parse_command
from arriero.engine import Engine
from arriero.gguf.shape import Shape
from arriero.gguf.writer import write_model
from arriero.logs.model import Failure
from arriero.process import Limit, clean_environment, free_port, start
from arriero.record import Trial
from arriero.trial import Bench, Patience, TrialSpec, Workload, run_trial

STEADY = {"MALLOC_ARENA_MAX": "1"}
"""Without it each thread that wakes up reserves 64 MiB of address space of its own."""
QUIET_VULKAN = {"GGML_VK_VISIBLE_DEVICES": "99"}
"""No device of that number: everything is on the CPU, and the Vulkan loader takes nothing."""
LAVAPIPE = {"GGML_VK_VISIBLE_DEVICES": "0"}
ON_VULKAN = ("-dev", "Vulkan0", "-ngl", "99", "--no-warmup")
BRIEF = Workload(prompts=2, long_prompt_s=0.3)
PATIENT = Patience(ready_s=120, stall_s=30, request_s=60)
_GIVE_UP = 60.0


@dataclass
class Models:
    """Models written once, by name. Zeros take no disk."""

    directory: Path
    written: dict[str, Path] = field(default_factory=dict)

    def __call__(self, shape: Shape, *, zeros: bool = False) -> Path:
        if shape.name not in self.written:
            path = self.directory / f"{shape.name}.gguf"
            weights = "zeros" if zeros else "random"
            self.written[shape.name] = write_model(path, shape, weights=weights)  # type: ignore[arg-type]
        return self.written[shape.name]


@dataclass(frozen=True)
class Provoked:
    """What a trial said, and the engine's own log of it."""

    trial: Trial
    log: str

    @property
    def failure(self) -> Failure:
        assert self.trial.failure is not None, f"{self.trial.outcome}: nothing was named"
        return self.trial.failure

    def figure(self, pattern: str) -> float:
        """The last figure that ``pattern`` finds in the log: what the engine itself said."""
        found = re.findall(pattern, self.log)
        assert found, f"the log has no {pattern!r}"
        return float(found[-1])


@dataclass
class Lab:
    """One engine and a directory for what it writes."""

    engine: Engine
    scratch: Path
    launches: int = 0

    def run(
        self,
        model: Path,
        *flags: str,
        limit: int | None = None,
        env: Mapping[str, str] = STEADY,
        workload: Workload = BRIEF,
        patience: Patience = PATIENT,
        meanwhile: Callable[[Path], None] | None = None,
    ) -> Provoked:
        """One trial of ``llama-server -m model flags``.

        ``meanwhile`` gets the path of the engine's log and acts in a thread of its own while the
        trial runs. ``limit`` is address space in bytes.
        """
        self.launches += 1
        scratch = self.scratch / f"run-{self.launches}"
        log_file = scratch / "trial-1" / "engine.log"
        words = ["llama-server", "-m", str(model), *flags]
        environ = {**clean_environment(), **QUIET_VULKAN, **env}
        command = parse_command(words, builtin_flags(), environ).with_flags(self.engine.flags)
        bench = Bench(
            engine=self.engine,
            limit=Limit(limit, LimitKind.ADDRESS_SPACE) if limit else None,
            scratch=scratch,
            cwd=self.scratch,
            redactor=Redactor(),
            patience=patience,
        )
        spec = TrialSpec(
            n=1, purpose="provoke", command=command, change={}, env=env, workload=workload
        )
        actor = threading.Thread(target=meanwhile, args=(log_file,)) if meanwhile else None
        if actor is not None:
            actor.start()
        try:
            trial = run_trial(spec, bench)
        finally:
            if actor is not None:
                actor.join()
        return Provoked(trial, log_file.read_text(errors="replace"))

    def ready_peak(
        self, model: Path, *flags: str, env: Mapping[str, str] = STEADY, lines: str = "model loaded"
    ) -> int:
        """The most address space that it has taken when its log says ``lines``, in bytes."""
        told = threading.Event()

        def on_line(line: str) -> None:
            if lines in line:
                told.set()

        argv = [
            str(self.engine.path),
            "-m",
            str(model),
            "--port",
            "0",
            "-lv",
            "4",
            *flags,
        ]
        environ = self.engine.environment({**clean_environment(), **QUIET_VULKAN, **env})
        with start(argv, env=environ, on_line=on_line) as running:
            assert told.wait(_GIVE_UP), running.poll()
            peak = running.memory().address_space_peak
        assert peak is not None
        return peak


def first_named(attempts: Iterable[Callable[[], Provoked]], says: str = "") -> Provoked:
    """The first attempt whose log holds its cause, and ``says`` (a pattern) in one piece.

    Threads of an engine that write at the same moment cut each other's lines.
    """
    for attempt in attempts:
        provoked = attempt()
        if provoked.failure.evidence is Evidence.NAMED and re.search(says, provoked.log):
            return provoked
    raise AssertionError(f"no log held its cause: {provoked.log}")


def named_or_inferred(attempts: Iterable[Callable[[], Provoked]]) -> Provoked:
    """The first attempt whose log holds its cause, else the last one.

    The engine logs in a thread of its own and a process that dies may take lines with it. Then
    what was named has to say that it is inferred, and its size is not known.
    """
    for attempt in attempts:
        provoked = attempt()
        if provoked.failure.evidence is Evidence.NAMED:
            break
        assert provoked.failure.bytes is None
    return provoked


def named(failure: Failure) -> dict[str, object]:
    """The fields that the contract fixes, without the wording."""
    return {
        "kind": failure.kind,
        "component": failure.component,
        "device": failure.device,
        "bytes": failure.bytes,
        "buffer_bytes": failure.buffer_bytes,
        "phase": failure.phase,
        "fatal": failure.fatal,
        "evidence": failure.evidence,
    }


def wait_for(log: Path, words: str) -> None:
    """Return when the log holds ``words``, or after a minute (the test fails by its asserts)."""
    deadline = time.monotonic() + _GIVE_UP
    while time.monotonic() < deadline:
        if log.is_file() and words in log.read_text(errors="replace"):
            return
        time.sleep(0.005)


def engine_process(model: Path) -> psutil.Process:
    """The one llama-server below this process that was given ``model``."""
    for child in psutil.Process().children(recursive=True):
        try:
            words = child.cmdline()
        except psutil.Error:
            continue
        if Path(child.name()).name.startswith("llama-server") and str(model) in words:
            return child
    raise AssertionError("the engine does not run")


def sends(number: signal.Signals, model: Path, after: str) -> Callable[[Path], None]:
    """Sends a signal to the engine as soon as its log holds ``after``."""

    def act(log: Path) -> None:
        wait_for(log, after)
        engine_process(model).send_signal(number)

    return act


@contextmanager
def worker(
    engine: Engine, *flags: str, env: Mapping[str, str] = QUIET_VULKAN, limit: int | None = None
) -> Iterator[tuple[str, psutil.Process]]:
    """A ``ggml-rpc-server`` on the loopback: its endpoint and its process.

    Its banner is buffered, so that it listens is found out by connecting.
    """
    assert engine.rpc_server is not None
    port = free_port()
    argv = [str(engine.rpc_server), "-H", "127.0.0.1", "-p", str(port), *flags]
    bound = Limit(limit, LimitKind.ADDRESS_SPACE) if limit else None
    environ = engine.environment({**clean_environment(), **env})
    with start(argv, env=environ, on_line=lambda _: None, limit=bound) as running:
        deadline = time.monotonic() + _GIVE_UP
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert running.poll() is None, "the worker ended"
                assert time.monotonic() < deadline, "the worker does not listen"
                time.sleep(0.05)
        yield f"127.0.0.1:{port}", psutil.Process(running.pid)
