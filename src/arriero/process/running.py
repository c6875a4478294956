"""Start a command under a guard, watch it, end it for sure. Linux; macOS without the subreaper."""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import select
import selectors
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from arriero.base.errors import ArrieroError, NotFoundError
from arriero.base.sizes import human
from arriero.base.words import LimitKind
from arriero.process import cgroup as cgroups
from arriero.process import guard
from arriero.process.memory import Sampler
from arriero.process.model import Completed, Exit, Limit, MemoryUse, ProcessError
from arriero.process.output import Output

assert sys.platform != "win32", "see plain.py"  # noqa: S101 - mypy knows this form

if TYPE_CHECKING:
    from arriero.process.guard import Job

_START_SECONDS: Final = 60.0
_END_SECONDS: Final = 60.0
"""A killed process may take this long, because a driver first frees a hundred gigabytes."""


class GuardLink:
    """Arriero's side of one guard: the pipes to it, and the cleanup if it is gone.

    The caller must drain and close the read ends in ``outputs``.
    """

    def __init__(self, *, separate: bool = False) -> None:
        self.outputs: tuple[int, ...] = ()
        self.handed_over = False
        """Whether a thread reads ``outputs`` and ``report``, and closes them in the end."""
        with contextlib.ExitStack() as undo:
            control_read, control = _pipe(undo)
            report, report_write = _pipe(undo)
            out, out_write = _pipe(undo)
            err, err_write = _pipe(undo) if separate else (out, out_write)
            theirs = (control_read, report_write, out_write, err_write)
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", guard.__file__, *map(str, theirs)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    cwd="/",
                    pass_fds=theirs,
                    start_new_session=True,
                )
            except OSError as error:
                raise _guard_error(str(error.strerror)) from error
            undo.pop_all()
        for fd in set(theirs):
            os.close(fd)
        self.control, self.report = control, report
        self._job: Job = {}
        self.outputs = (out, err) if separate else (out,)
        started = guard.stat(self._process.pid)
        self.marker = f"{self._process.pid}:{started[2] if started else 0}"

    def ask(self, job: Job) -> tuple[Any, ...]:
        """Send the job and return the first answer.

        Raises:
            ProcessError: The guard did not answer.
        """
        poll = select.poll()
        poll.register(self.report, select.POLLIN)
        try:
            guard.send(self.control, job)
            answer = guard.receive(self.report) if poll.poll(_START_SECONDS * 1000) else None
        except OSError:
            answer = None
        if not answer or answer[0] == "broken":
            raise _guard_error(answer[1] if answer else "no answer")
        if answer[0] != "failed":
            self._job = job
        return tuple(answer)

    def order(self, number: int) -> None:
        """A signal for the command, or the end of its tree."""
        with contextlib.suppress(OSError):
            os.write(self.control, bytes([number]))

    def close(self) -> None:
        """Let go: the guard ends what is left, cleans up and exits. Returns when it has.

        Raises:
            ProcessError: Something does not end (a driver that hangs in the kernel).
        """
        control, self.control = self.control, -1
        if control < 0:
            return
        os.close(control)
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            left = guard.descendants(self._process.pid)
            raise ProcessError(
                f"these processes do not end even when killed: {', '.join(map(str, left))}",
                hint="reboot if they stay: they hang inside the kernel, usually in a driver",
                id="unkillable",
            ) from None
        finally:
            if not self.handed_over:
                os.close(self.report)
        # Only if the guard itself was killed is anything of this still there.
        if "scratch" in self._job:
            guard.remove_tree(os.fsdecode(self._job["scratch"]))
        if "cgroup" in self._job:
            guard.remove_cgroup(os.fsdecode(self._job["cgroup"]))

    def end_survivors(self) -> None:
        """End all processes with the marker of a guard that has died.

        A process that is just becoming another program shows no environment for a moment, so only
        several looks in a row mean that none is left.
        """
        deadline = time.monotonic() + _END_SECONDS
        clear = 0
        while clear < 10 and time.monotonic() < deadline:
            left = guard.marked(self.marker)
            for pid in left:
                guard.kill(pid)
            clear = 0 if left else clear + 1
            time.sleep(0.02)


def _guard_error(reason: str) -> ProcessError:
    return ProcessError(
        f"the guard process did not start: {reason}",
        hint="check that this Python installation is complete and that memory is free",
        id="guard",
    )


def _pipe(undo: contextlib.ExitStack) -> tuple[int, int]:
    """A pipe whose ends are not standard descriptors, even if Arriero was started without them."""
    import fcntl

    ends = []
    for fd in os.pipe():
        safe = fd
        if fd < 3:
            safe = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
            os.close(fd)
        undo.callback(os.close, safe)
        ends.append(safe)
    return ends[0], ends[1]


class Running:
    """A command that was started. As a context manager, its end is the end of the whole tree.

    ``pid`` is the command itself. Lines reach ``on_line`` in another thread, in order; ``on_line``
    must not wait for the process. ``dropped`` counts bytes of output lost to a slow ``on_line``.
    """

    def __init__(self, link: GuardLink, pid: int, output: Output, sampler: Sampler) -> None:
        self.pid = pid
        self._link = link
        self._output = output
        self._sampler = sampler
        self._exit: Exit | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._listen, name=f"process {pid}", daemon=True)
        link.handed_over = True
        self._thread.start()

    @property
    def dropped(self) -> int:
        return self._output.dropped

    def poll(self) -> Exit | None:
        """How it ended, or None while it runs. All its output has been handed over before."""
        return self._exit if self._over.is_set() else None

    def wait(self, timeout: float | None = None) -> Exit | None:
        """Wait for the end, at most ``timeout`` seconds; None if it still runs.

        When the command ends, whatever it started is ended too. An exception that ``on_line``
        raised is raised here.
        """
        if not self._over.wait(timeout):
            return None
        if self._output.error is not None:
            raise self._output.error
        return self._exit

    def memory(self) -> MemoryUse:
        """Memory now, or the last known marks once it has ended. A fraction of a millisecond."""
        return self._sampler.sample()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the command itself; nothing happens if it has ended."""
        self._link.order(number)

    def stop(self, grace: float) -> Exit:
        """Ask it to end (SIGTERM), give it ``grace`` seconds, then kill the whole tree.

        Raises:
            ProcessError: Something does not end even when killed.
        """
        if grace > 0 and self.poll() is None:
            self._link.order(signal.SIGTERM)
            self._link.order(signal.SIGCONT)
            self._over.wait(grace)
        if not self._over.is_set():
            self._link.order(guard.KILL_TREE)
        if not self._over.wait(_END_SECONDS):
            self._link.close()
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
        """End the whole tree at once if it still runs, and remove its scratch directory."""
        self._link.order(guard.KILL_TREE)
        self._over.wait(_END_SECONDS)
        self._link.close()
        self._thread.join(_END_SECONDS)

    def _listen(self) -> None:
        """Drain output and hear the guard until both are at their end."""
        (out,) = self._link.outputs
        report = self._link.report
        poll = select.poll()
        poll.register(out, select.POLLIN)
        poll.register(report, select.POLLIN)
        ended: Exit | None = None
        waiting = {out, report}
        while waiting:
            for fd, _ in poll.poll():
                if fd == out:
                    chunk = os.read(out, 1 << 16)
                    if chunk:
                        self._output.put(chunk)
                        continue
                else:
                    message = guard.receive(report)
                    if message and message[0] == "ended":
                        ended = self._note_end(*message[1:])
                    else:
                        self._link.end_survivors()
                poll.unregister(fd)
                waiting.discard(fd)
        os.close(out)
        os.close(report)
        self._output.finish()
        self._exit = ended or Exit(-signal.SIGKILL)
        self._over.set()

    def _note_end(
        self,
        status: int | None,
        address_space: int,
        rss: int,
        anonymous: int,
        cgroup_peak: int | None,
        oom_kills: int,
    ) -> Exit:
        self._sampler.note_end(address_space, rss, anonymous, cgroup_peak)
        return Exit(-signal.SIGKILL if status is None else status, oom_kills)


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
    """Start a command whose whole tree ends with the returned `Running`, or with Arriero.

    Standard output and error arrive in ``on_line`` in the order in which they were written;
    standard input is empty. ``argv[0]`` is looked up in the ``PATH`` of ``env``. ``scratch`` is a
    directory to be made (or an empty one to take), removed with everything in it in the end.
    No core file is written.

    Raises:
        NotFoundError: There is no such program.
        ProcessError: It cannot be executed, or the limit cannot be set; the message says why.
    """
    file = _resolve(argv, env, cwd)
    job = _job(argv, file, env, cwd)
    place = _limit(job, limit)
    if scratch is not None:
        job["scratch"] = os.fsencode(scratch.absolute())
    output = Output(on_line, log_file)
    link: GuardLink | None = None
    try:
        link = GuardLink()
        if place is not None:
            name = f"arriero-{link.marker.replace(':', '-')}"
            place = replace(place, path=place.path / name)
            job["cgroup"] = os.fsencode(place.path)
        pid = _begin(link, job, file)
        return Running(link, pid, output, Sampler(pid, place))
    except BaseException:
        if link is None or not link.handed_over:
            output.finish()
        if link is not None:
            if not link.handed_over:
                os.close(link.outputs[0])
            link.close()
        raise


def _begin(link: GuardLink, job: Job, file: str) -> int:
    answer = link.ask(job)
    if answer[0] == "started":
        return int(answer[1])
    raise start_error(answer[1], answer[2], answer[3], file, job)


def run(
    argv: Sequence[str | os.PathLike[str]],
    *,
    env: Mapping[str, str],
    timeout: float,
    cwd: Path | None = None,
    max_output: int = 1 << 22,
) -> Completed:
    """Run a command that answers and ends, such as ``llama-server --version``.

    At most ``max_output`` bytes of each stream are kept. When the command ends, so does whatever
    it started.

    Raises:
        NotFoundError: There is no such program.
        ProcessError: It cannot be executed, or it takes longer than ``timeout`` seconds (its whole
            tree is killed then).
    """
    with _asked(argv, env, timeout, cwd, max_output) as answer:
        return answer()


def run_at_once(
    commands: Iterable[Sequence[str | os.PathLike[str]]],
    *,
    env: Mapping[str, str],
    timeout: float,
    max_output: int = 1 << 22,
) -> list[Completed]:
    """Run several commands side by side, each as :func:`run` does.

    Raises:
        NotFoundError: As :func:`run`, of the first command that it holds for; the others are ended.
        ProcessError: Likewise.
    """
    with contextlib.ExitStack() as stack:
        answers = [
            stack.enter_context(_asked(argv, env, timeout, None, max_output)) for argv in commands
        ]
        return [answer() for answer in answers]


@contextlib.contextmanager
def _asked(
    argv: Sequence[str | os.PathLike[str]],
    env: Mapping[str, str],
    timeout: float,
    cwd: Path | None,
    max_output: int,
) -> Iterator[Callable[[], Completed]]:
    """A command that has been started, and the function that waits for its end."""
    file = _resolve(argv, env, cwd)
    job = _job(argv, file, env, cwd)
    deadline = time.monotonic() + timeout
    link = GuardLink(separate=True)
    kept = {fd: bytearray() for fd in link.outputs}

    def answer() -> Completed:
        truncated = False
        status: int | None = None
        with selectors.DefaultSelector() as selector:
            for fd in (*link.outputs, link.report):
                selector.register(fd, selectors.EVENT_READ)
            while selector.get_map():
                ready = selector.select(max(deadline - time.monotonic(), 0))
                if not ready:
                    raise ProcessError(
                        f"{file} did not answer within {timeout:g} s",
                        hint="check that the machine has free memory and that no device hangs",
                        id="timeout",
                    )
                for fd in (key.fd for key, _ in ready):
                    if fd == link.report:
                        message = guard.receive(fd)
                        status = message[1] if message and message[0] == "ended" else None
                        selector.unregister(fd)
                        continue
                    chunk = os.read(fd, 1 << 16)
                    room = max_output - len(kept[fd])
                    kept[fd] += chunk[:room]
                    truncated = truncated or len(chunk) > room
                    if not chunk:
                        selector.unregister(fd)
        out, err = (bytes(kept[fd]).decode(errors="replace") for fd in link.outputs)
        return Completed(-signal.SIGKILL if status is None else status, out, err, truncated)

    try:
        _begin(link, job, file)
        yield answer
    finally:
        try:
            link.close()
        finally:
            for fd in link.outputs:
                os.close(fd)


@contextlib.contextmanager
def scratch_directory(parent: Path) -> Iterator[Path]:
    """A new directory ``arriero-*`` in ``parent`` that is gone afterwards, however Arriero ends.

    Raises:
        ProcessError: It cannot be made.
    """
    path = parent.absolute() / f"arriero-{os.getpid()}-{os.urandom(4).hex()}"
    link = GuardLink()
    os.close(link.outputs[0])
    try:
        answer = link.ask({"scratch": os.fsencode(path)})
        if answer[0] == "failed":
            raise _scratch_error(path, answer[3])
        yield path
    finally:
        link.close()


def _scratch_error(path: Path | str, reason: str) -> ProcessError:
    return ProcessError(
        f"cannot create the scratch directory {path}: {reason}",
        hint="set TMPDIR to a directory with free space",
        id="scratch",
    )


def _job(
    argv: Sequence[str | os.PathLike[str]], file: str, env: Mapping[str, str], cwd: Path | None
) -> Job:
    try:
        here = Path.cwd()
    except FileNotFoundError:
        raise ProcessError("the current directory has been removed", id="not-executable") from None
    return {
        "command": [os.fsencode(word) for word in argv],
        "file": os.fsencode(file),
        "environment": {os.fsencode(key): os.fsencode(value) for key, value in env.items()},
        "cwd": os.fsencode(here / cwd if cwd else here),
    }


def _resolve(
    argv: Sequence[str | os.PathLike[str]], env: Mapping[str, str], cwd: Path | None
) -> str:
    """The file to execute: a path as it is, a bare name looked up in ``PATH``."""
    if not argv or not os.fspath(argv[0]):
        raise ProcessError("the command is empty", id="not-executable")
    if any("\0" in os.fspath(word) for word in argv):
        raise ProcessError("an argument contains a NUL character", id="not-executable")
    name = os.fspath(argv[0])
    if os.sep in name:
        return name
    found = shutil.which(name, path=env.get("PATH", os.defpath))
    if found is None:
        raise NotFoundError(
            f"there is no program {name} in PATH",
            hint="give its path, or correct PATH",
            id="no-program",
        )
    return found


def _limit(job: Job, limit: Limit | None) -> cgroups.MemoryCgroup | None:
    """Put a limit into the job; the cgroup's parent if it is one (its name needs the guard)."""
    import resource

    import psutil  # late: few are started with a limit

    if limit is None:
        return None
    if not psutil.LINUX:
        raise ProcessError(
            "this system cannot limit the memory of a process",
            hint="run without --limit, or on Linux",
            id="limit",
        )
    if limit.bytes <= 0:
        raise ProcessError("the memory limit must be above zero", id="limit")
    if limit.kind is LimitKind.ADDRESS_SPACE:
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        if hard != resource.RLIM_INFINITY and limit.bytes > hard:
            raise ProcessError(
                f"the limit of {human(limit.bytes)} is above the shell's own of {human(hard)}",
                hint="raise `ulimit -Hv`, or set a lower limit",
                id="limit",
            )
        job["address_space"] = limit.bytes
        return None
    parent = cgroups.place()
    job["cgroup_settings"] = cgroups.settings(parent, limit.bytes)
    job["cgroup_peak"] = parent.peak_file
    job["cgroup_events"] = parent.events_file
    return parent


def start_error(step: str, code: int, detail: str, file: str, job: Job) -> ArrieroError:
    """The error of a command that could not be started."""
    reason = os.strerror(code)
    match step:
        case "scratch":
            return _scratch_error(os.fsdecode(job["scratch"]), detail or reason)
        case "cgroup":
            return ProcessError(
                f"cannot limit memory by cgroup: {detail or 'cgroup.procs'}: {reason}",
                hint="use --limit-kind address-space instead",
                id="cgroup-unavailable",
            )
        case "cwd":
            return ProcessError(
                f"cannot enter {os.fsdecode(job['cwd'])}: {reason}", id="not-executable"
            )
        case "limit":
            return ProcessError(f"cannot set the address-space limit: {reason}", id="limit")
        case _:
            return _exec_error(code, file, os.fsdecode(job["cwd"]))


def _exec_error(code: int, file: str, cwd: str) -> ArrieroError:
    path = Path(cwd, file)
    match code:
        case errno.ENOENT | errno.ENOTDIR if not path.exists():
            return NotFoundError(
                f"there is no program {file}",
                hint="check the path, from this directory",
                id="no-program",
            )
        case errno.ENOENT:
            reason = f"its interpreter {interpreter(path) or ''} is missing".replace("  ", " ")
            hint = "use a build for this system (musl or glibc, distribution)"
        case errno.EACCES if path.is_dir():
            reason, hint = "it is a directory", "give the path of the program in it"
        case errno.EACCES:
            reason = "permission denied"
            hint = f"run chmod +x {file}, and check that its file system is not mounted noexec"
        case errno.ENOEXEC:
            made_for = machine_of(path)
            reason, hint = "it is not a program for this machine", "check that the file is complete"
            if made_for is not None:
                reason += f" but for {made_for}"
                hint = f"use a build for {platform.machine()}"
        case errno.E2BIG:
            reason = "the arguments and the environment are too long"
            hint = "shorten the command, or unset large variables"
        case errno.ENOMEM:
            reason = "not enough memory to start it"
            hint = "raise the limit"
        case _:
            reason, hint = os.strerror(code), ""
    return ProcessError(f"cannot execute {file}: {reason}", hint=hint, id="not-executable")


_MACHINES: Final = {
    3: "x86 of 32 bit", 8: "MIPS", 20: "POWER of 32 bit", 21: "POWER", 22: "s390x",
    40: "ARM of 32 bit", 62: "x86-64", 183: "aarch64 (ARM)", 243: "RISC-V", 258: "LoongArch",
}  # fmt: skip
"""``e_machine`` of an ELF file."""
_OTHER_SYSTEMS: Final = {
    b"MZ": "Windows",
    b"\xcf\xfa\xed\xfe": "macOS",
    b"\xca\xfe\xba\xbe": "macOS",
}


def machine_of(path: Path) -> str | None:
    """The machine for which a program was compiled, from its first bytes; None if unknown."""
    try:
        with path.open("rb") as file:
            head = file.read(20)
    except OSError:
        return None
    for magic, system in _OTHER_SYSTEMS.items():
        if head.startswith(magic):
            return system
    if head[:4] != b"\x7fELF" or len(head) < 20:
        return None
    return _MACHINES.get(int.from_bytes(head[18:20], "big" if head[5] == 2 else "little"))


def interpreter(path: Path) -> str | None:
    """The interpreter that a script or an ELF program names."""
    try:
        with path.open("rb") as file:
            head = file.read(1 << 16)
    except OSError:
        return None
    if head.startswith(b"#!"):
        return head[2:].split(b"\n", 1)[0].strip().split(b" ", 1)[0].decode(errors="replace")
    if head[:4] != b"\x7fELF" or len(head) < 64 or head[4] != 2 or head[5] != 1:
        return None
    table = int.from_bytes(head[32:40], "little")
    size, count = (int.from_bytes(head[at : at + 2], "little") for at in (54, 56))
    for at in range(table, table + size * count, max(size, 1)):
        entry = head[at : at + 56]
        if entry[:4] == b"\x03\0\0\0":  # PT_INTERP
            offset = int.from_bytes(entry[8:16], "little")
            return head[offset : offset + 4096].split(b"\0", 1)[0].decode(errors="replace")
    return None
