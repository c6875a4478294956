"""The same functions for systems without fork (Windows): psutil instead of a guard.

The tree is found by parent process ids and ended on success, failure and exceptions. If Arriero
itself is killed, nothing here runs, so the started processes stay. Memory limits are refused. This
was tested on Linux, where it also runs, but not yet on Windows.
"""

from __future__ import annotations

import contextlib
import os
import signal as signals
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import psutil

from arriero.base.errors import NotFoundError
from arriero.process.memory import Sampler
from arriero.process.model import Completed, Exit, Limit, MemoryUse, ProcessError
from arriero.process.output import Output

_END_SECONDS: Final = 20.0


class Running:
    """A command that was started. As a context manager, its end is the end of the whole tree."""

    def __init__(
        self, process: psutil.Popen, output: Output, scratch: Path | None, sampler: Sampler
    ) -> None:
        self.pid: int = process.pid
        self._process = process
        self._output = output
        self._scratch = scratch
        self._sampler = sampler
        self._status = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._drain, name=f"process {self.pid}", daemon=True)
        self._thread.start()

    @property
    def dropped(self) -> int:
        return self._output.dropped

    def poll(self) -> Exit | None:
        return Exit(self._status) if self._over.is_set() else None

    def wait(self, timeout: float | None = None) -> Exit | None:
        if not self._over.wait(timeout):
            return None
        if self._output.error is not None:
            raise self._output.error
        return self.poll()

    def memory(self) -> MemoryUse:
        return self._sampler.sample()

    def signal(self, number: signals.Signals) -> None:
        with contextlib.suppress(psutil.Error, OSError, ValueError):
            self._process.send_signal(number)

    def stop(self, grace: float) -> Exit:
        if grace > 0 and self.poll() is None:
            self.signal(signals.SIGTERM)
            self._over.wait(grace)
        _end_tree(self._process)
        found = self.wait(_END_SECONDS)
        if found is None:
            raise ProcessError(f"process {self.pid} does not end", id="unkillable")
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        _end_tree(self._process)
        self._over.wait(_END_SECONDS)
        if self._scratch is not None:
            import shutil

            shutil.rmtree(self._scratch, ignore_errors=True)

    def _drain(self) -> None:
        ender = threading.Thread(target=self._end_with_command, daemon=True)
        ender.start()
        with self._process.stdout as pipe:
            while chunk := os.read(pipe.fileno(), 1 << 16):
                self._output.put(chunk)
        ender.join()
        self._output.finish()
        self._sampler.note_end(0, 0, 0, None)
        self._over.set()

    def _end_with_command(self) -> None:
        """Remember the tree while the command lives; end what is left of it afterwards."""
        seen: list[psutil.Process] = []
        while True:
            with contextlib.suppress(psutil.Error):
                seen = self._process.children(recursive=True) or seen
            with contextlib.suppress(psutil.TimeoutExpired):
                # Only this thread waits: of two, one would not get the status.
                self._status = self._process.wait(0.1)
                break
        for child in seen:
            with contextlib.suppress(psutil.Error):
                child.kill()


def _end_tree(process: psutil.Popen) -> None:
    with contextlib.suppress(psutil.Error):
        tree = [*process.children(recursive=True), process]
        for one in tree:
            with contextlib.suppress(psutil.Error):
                one.kill()


def start(
    argv: Sequence[str | os.PathLike[str]],
    *,
    env: Mapping[str, str],
    on_line: Callable[[str], None],
    cwd: Path | None = None,
    limit: Limit | None = None,
    log_file: Path | None = None,
    scratch: Path | None = None,
) -> Running:
    if limit is not None:
        raise ProcessError(
            "this system cannot limit the memory of a process",
            hint="run without --limit, or on Linux",
            id="limit",
        )
    output = Output(on_line, log_file)
    try:
        process = _popen(argv, env, cwd, stderr=subprocess.STDOUT)
    except BaseException:
        output.finish()
        raise
    if scratch is not None:
        scratch.mkdir(parents=True, exist_ok=True)
    return Running(process, output, scratch, Sampler(process.pid))


def run(
    argv: Sequence[str | os.PathLike[str]],
    *,
    env: Mapping[str, str],
    timeout: float,
    cwd: Path | None = None,
    max_output: int = 1 << 22,
) -> Completed:
    deadline = time.monotonic() + timeout
    process = _popen(argv, env, cwd, stderr=subprocess.PIPE)
    kept = [bytearray(), bytearray()]
    truncated = [False, False]

    def drain(which: int, pipe: Any) -> None:
        with pipe:
            while chunk := os.read(pipe.fileno(), 1 << 16):
                room = max_output - len(kept[which])
                kept[which] += chunk[:room]
                truncated[which] = truncated[which] or len(chunk) > room

    threads = [
        threading.Thread(target=drain, args=(which, pipe), daemon=True)
        for which, pipe in enumerate((process.stdout, process.stderr))
    ]
    for thread in threads:
        thread.start()
    try:
        process.wait(max(deadline - time.monotonic(), 0))
    except psutil.TimeoutExpired:
        raise ProcessError(
            f"{os.fspath(argv[0])} did not answer within {timeout:g} s", id="timeout"
        ) from None
    finally:
        _end_tree(process)
        with contextlib.suppress(psutil.TimeoutExpired):
            process.wait(_END_SECONDS)
        for thread in threads:
            thread.join(_END_SECONDS)
    out, err = (bytes(text).decode(errors="replace") for text in kept)
    return Completed(process.returncode, out, err, any(truncated))


def run_at_once(
    commands: Iterable[Sequence[str | os.PathLike[str]]],
    *,
    env: Mapping[str, str],
    timeout: float,
    max_output: int = 1 << 22,
) -> list[Completed]:
    return [run(argv, env=env, timeout=timeout, max_output=max_output) for argv in commands]


def _popen(
    argv: Sequence[str | os.PathLike[str]],
    env: Mapping[str, str],
    cwd: Path | None,
    *,
    stderr: int,
) -> psutil.Popen:
    name = os.fspath(argv[0]) if argv else ""
    try:
        return psutil.Popen(
            [os.fspath(word) for word in argv],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=dict(env),
            cwd=cwd,
            # A console's Ctrl-C is for Arriero, which ends the tree in order.
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
        )
    except FileNotFoundError as error:
        raise NotFoundError(
            f"there is no program {name}",
            hint="check the path, from this directory",
            id="no-program",
        ) from error
    except (OSError, ValueError, IndexError) as error:
        raise ProcessError(f"cannot execute {name}: {error}", id="not-executable") from error


@contextlib.contextmanager
def scratch_directory(parent: Path) -> Iterator[Path]:
    try:
        directory = tempfile.TemporaryDirectory(prefix="arriero-", dir=parent)
    except OSError as error:
        raise ProcessError(
            f"cannot create a scratch directory in {parent}: {error.strerror}",
            hint="set TMPDIR to a directory with free space",
            id="scratch",
        ) from error
    with directory as name:
        yield Path(name)


def sweep(parent: Path) -> tuple[Path, ...]:
    """Remove nothing: on this system nothing shows whether a directory's owner still runs."""
    return ()
