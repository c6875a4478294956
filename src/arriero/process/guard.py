"""The guard: a small process between Arriero and a command, which sees that nothing is left.

Run by path as ``python -I -S guard.py CONTROL REPORT OUT ERR`` (four file descriptors), standard
library only. It leads its own session (a terminal's Ctrl-C does not reach it), ignores the signals
one can ignore, and adopts every orphan of the command (child subreaper). Arriero alone holds the
write end of CONTROL: when that closes, however Arriero ended, the guard kills the whole tree,
removes the scratch directory and the cgroup, and exits. The direct child also carries
``PR_SET_PDEATHSIG``, so that a SIGKILL of the guard ends it too.

Frames on both pipes are a 4-byte length and a ``marshal`` value; both ends are the same Python.
After the first frame (the job, see `model.Job`), CONTROL carries single bytes: a signal for the
command, or `KILL_TREE`.

Outside Linux there is no subreaper and no ``/proc``: the guard kills the command's process group,
and a descendant that made its own session is not found.
"""

from __future__ import annotations

# pathlib would double the time to start:
# ruff: noqa: PTH102, PTH103, PTH104, PTH106, PTH110, PTH208
import contextlib
import marshal
import os
import select
import signal
import sys
import time

assert sys.platform != "win32", "needs fork"  # noqa: S101 - mypy knows this form

TYPE_CHECKING = False  # typing itself would double the time to start
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from arriero.process.model import Job


KILL_TREE = 0
MARKER = "ARRIERO_GUARD"
"""In the environment of everything a guard starts: ``<pid>:<start time>`` of that guard."""
LOCK = "arriero.lock"
"""Locked by the guard in its scratch directory for as long as it lives."""

_FRAME_CEILING = 1 << 26
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def send(fd: int, value: Any) -> None:
    """Write one frame."""
    body = marshal.dumps(value)
    data = memoryview(len(body).to_bytes(4, "little") + body)
    while data:
        data = data[os.write(fd, data) :]


def receive(fd: int) -> Any:
    """Read one frame; None at the end of the pipe, also within a frame."""
    size = _read(fd, 4)
    if size is None:
        return None
    length = int.from_bytes(size, "little")
    body = _read(fd, length) if length <= _FRAME_CEILING else None
    return None if body is None else marshal.loads(body)  # noqa: S302 - from our own other end


def _read(fd: int, size: int) -> bytes | None:
    parts = []
    while size:
        part = os.read(fd, min(size, 1 << 20))
        if not part:
            return None
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def stat(pid: int) -> tuple[str, int, int] | None:
    """State letter, parent and start time (clock ticks since boot) of a process, if it exists."""
    text = read_file(f"/proc/{pid}/stat", 4096)
    if text is None or b")" not in text:
        return None
    # The name in parentheses may itself hold blanks and parentheses.
    fields = text[text.rindex(b")") + 2 :].split()
    return fields[0].decode(), int(fields[1]), int(fields[19])


def descendants(root: int) -> list[int]:
    """Every process below ``root``, parents first.

    Zombies are among them: a process whose first thread has ended looks like one and still runs.
    """
    children: dict[int, list[int]] = {}
    for pid in pids():
        found = stat(pid)
        if found:
            children.setdefault(found[1], []).append(pid)
    result: list[int] = []
    level = [root]
    while level:
        level = [pid for parent in level for pid in children.get(parent, ())]
        result += level
    return result


def pids() -> list[int]:
    """Every process that ``/proc`` shows; none where there is no ``/proc``."""
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def read_file(path: str, limit: int) -> bytes | None:
    """At most ``limit`` bytes of a file of the kernel; None if it cannot be read (any more)."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.read(fd, limit)
    except OSError:
        return None
    finally:
        os.close(fd)


def status_number(status: bytes, name: bytes) -> int | None:
    """The number in one ``Name:  123`` line of ``/proc/PID/status``."""
    start = status.find(b"\n" + name + b":")
    if start < 0:
        return None
    return int(status[start + len(name) + 2 :].split(None, 1)[0])


def kibibytes(status: bytes, name: bytes) -> int | None:
    """One ``Name:  123 kB`` line of ``/proc/PID/status``, in bytes."""
    number = status_number(status, name)
    return None if number is None else number << 10


def marked(marker: str) -> list[int]:
    """Living processes of this user whose environment names the guard ``marker``."""
    wanted = f"{MARKER}={marker}".encode()
    me = os.getpid()
    return [
        pid
        for pid in pids()
        if pid != me and wanted in (read_file(f"/proc/{pid}/environ", 1 << 20) or b"").split(b"\0")
    ]


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    """Send a signal; a process that is gone or belongs to somebody else is no error."""
    with contextlib.suppress(OSError):
        os.kill(pid, number)


def remove_tree(path: str) -> None:
    """Remove a directory and everything in it, as far as permissions allow."""
    import shutil

    shutil.rmtree(path, ignore_errors=True)


def remove_cgroup(path: str) -> None:
    """Remove an empty cgroup; the kernel may need a moment after its last process ended."""
    for _ in range(100):
        try:
            os.rmdir(path)
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.02)
        else:
            return


def hold_directory(path: str) -> int:
    """Make a directory (or take an empty one) and return a descriptor that keeps it locked.

    The lock file appears under its name already locked, so that no sweep can take the directory
    for an abandoned one.
    """
    import fcntl

    os.makedirs(path, mode=0o700, exist_ok=True)
    if os.listdir(path):
        raise FileExistsError(17, "the directory is not empty", path)
    name = f"{path}/{LOCK}"
    fd = os.open(name + ".new", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX)
    os.rename(name + ".new", name)
    return fd


def _prctl() -> Callable[[int, int], int]:
    if sys.platform == "linux":
        import ctypes

        function = ctypes.CDLL(None).prctl
        return lambda option, value: int(function(option, value, 0, 0, 0))
    else:  # noqa: RET505 - each platform's checker sees one branch
        return lambda option, value: 0


class _Peaks:
    """High-water marks of the command, in bytes.

    VmPeak and VmHWM are the kernel's own marks, lost when the process exits: they are read every
    hundredth of its age (5 to 250 ms), so only what came after the last reading is missing.
    """

    def __init__(self, pid: int) -> None:
        self.path = f"/proc/{pid}/status"
        self.born = time.monotonic()
        self.address_space = self.rss = self.anonymous = 0

    def sample(self) -> None:
        status = read_file(self.path, 8192)
        if status is None:
            return
        anonymous = (kibibytes(status, b"RssAnon") or 0) + (kibibytes(status, b"VmSwap") or 0)
        self.anonymous = max(self.anonymous, anonymous)
        self.address_space = max(self.address_space, kibibytes(status, b"VmPeak") or 0)
        self.rss = max(self.rss, kibibytes(status, b"VmHWM") or 0)

    def note_maxrss(self, maxrss: int) -> None:
        """``ru_maxrss`` of the command at its end; it began as a fork of this process."""
        import resource

        if maxrss > resource.getrusage(resource.RUSAGE_SELF).ru_maxrss:
            unit = 1 if sys.platform == "darwin" else 1024
            self.rss = max(self.rss, maxrss * unit)

    def interval(self) -> int:
        """Milliseconds until the next reading."""
        return int(min(max((time.monotonic() - self.born) * 10, 5), 250))


class _Guard:
    def __init__(self, control: int, report: int, out: int, err: int) -> None:
        self.control, self.report, self.out, self.err = control, report, out, err
        self.prctl = _prctl()
        self.child = 0
        self.status: int | None = None
        self.peaks = _Peaks(0)
        self.job: Job = {}

    def main(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        self.prctl(_PR_SET_CHILD_SUBREAPER, 1)
        job = receive(self.control)
        if job is None:
            return
        self.job = job
        lock = -1
        try:
            if "scratch" in job:
                lock = hold_directory(os.fsdecode(job["scratch"]))
        except OSError as error:
            self.tell("failed", "scratch", error.errno, str(error.strerror))
            return
        try:
            self.serve()
        finally:
            if "scratch" in job:
                remove_tree(os.fsdecode(job["scratch"]))
                os.close(lock)

    def serve(self) -> None:
        if "command" not in self.job:
            self.tell("held")
        elif self.start():
            try:
                self.watch()
            finally:
                self.end_tree()
                self.tell_end()
        # Arriero may still want what is in the scratch directory.
        while True:
            try:
                if not os.read(self.control, 4096):
                    return
            except OSError:
                return

    def tell(self, *message: Any) -> None:
        # Arriero may be gone: then there is nobody to tell, and the work here goes on.
        with contextlib.suppress(OSError):
            send(self.report, message)

    def start(self) -> bool:
        """Start the command and report its pid; False if that failed, with the reason reported."""
        job = self.job
        cgroup = os.fsdecode(job["cgroup"]) if "cgroup" in job else None
        if cgroup is not None:
            try:
                os.mkdir(cgroup)
                for name, value, required in job["cgroup_settings"]:
                    if required or os.path.exists(f"{cgroup}/{name}"):
                        write_file(f"{cgroup}/{name}", value)
            except OSError as error:
                remove_cgroup(cgroup)
                self.tell("failed", "cgroup", error.errno, str(error.filename))
                return False
        me = os.getpid()
        started = stat(me)
        marker = f"{me}:{started[2] if started else 0}"
        ready, failed = os.pipe()
        self.child = os.fork()
        if self.child == 0:
            self.become_command(me, marker, failed)
        os.close(failed)
        for fd in {self.out, self.err}:
            os.close(fd)
        self.peaks = _Peaks(self.child)
        problem = receive(ready)
        os.close(ready)
        if problem is not None:
            os.waitpid(self.child, 0)
            if cgroup is not None:
                remove_cgroup(cgroup)
            self.tell("failed", *problem)
            return False
        self.tell("started", self.child)
        return True

    def become_command(self, parent: int, marker: str, failed: int) -> None:
        """In the forked child: take on limits and descriptors, then become the command."""
        job = self.job
        step = "setup"
        try:
            self.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(127)
            os.setsid()
            for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
                with contextlib.suppress(OSError, ValueError):
                    signal.signal(number, signal.SIG_DFL)
            os.dup2(self.out, 1)
            os.dup2(self.err, 2)
            step = "cwd"
            os.chdir(job["cwd"])
            if "cgroup" in job:
                step = "cgroup"
                write_file(os.fsdecode(job["cgroup"]) + "/cgroup.procs", "0")
            environment = {**job["environment"], MARKER.encode(): marker.encode()}
            step = "limit"
            limit_resources(job.get("address_space"))
            step = "exec"
            os.execve(job["file"], job["command"], environment)  # noqa: S606 - the point of it
        except MemoryError:
            send(failed, (step, 12, ""))
        except OSError as error:
            send(failed, (step, error.errno, ""))
        finally:
            os._exit(127)

    def watch(self) -> None:
        """Pass signals on and read memory until the command ends or Arriero wants it ended."""
        wake, woken = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(woken, False)
        signal.set_wakeup_fd(woken)
        poll = select.poll()
        poll.register(self.control, select.POLLIN)
        poll.register(wake, select.POLLIN)
        while True:
            # Read before reaping: a zombie that is not the command must not delay the marks.
            self.peaks.sample()
            self.reap()
            if self.status is not None:
                return
            ready = [fd for fd, _ in poll.poll(self.peaks.interval())]
            if wake in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(wake, 4096)
            if self.control in ready:
                orders = os.read(self.control, 4096)
                if not orders or KILL_TREE in orders:
                    return
                for number in orders:
                    kill(self.child, number)

    def reap(self) -> bool:
        """Collect every child that ended, the adopted ones too; True if none is left at all."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                return False
            if pid == self.child:
                self.status = os.waitstatus_to_exitcode(status)
                self.peaks.note_maxrss(usage.ru_maxrss)

    def end_tree(self) -> None:
        """Kill until nothing is left. Whatever loses its parent meanwhile becomes our child."""
        me = os.getpid()
        pause = 0.001
        while not self.reap():
            for pid in descendants(me):
                kill(pid)
            if sys.platform != "linux":
                with contextlib.suppress(OSError):
                    os.killpg(self.child, signal.SIGKILL)
            if self.reap():
                break
            time.sleep(pause)
            pause = min(pause * 2, 0.1)

    def tell_end(self) -> None:
        peaks, job = self.peaks, self.job
        cgroup_peak = oom_kills = None
        if "cgroup" in job:
            cgroup = os.fsdecode(job["cgroup"])
            cgroup_peak = read_number(f"{cgroup}/{job['cgroup_peak']}")
            oom_kills = read_counter(f"{cgroup}/{job['cgroup_events']}", b"oom_kill")
            remove_cgroup(cgroup)
        marks = (peaks.address_space, peaks.rss, peaks.anonymous)
        self.tell("ended", self.status, *marks, cgroup_peak, oom_kills or 0)


def write_file(path: str, value: str) -> None:
    """Write a setting of the kernel in one go; an error names the file."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, value.encode())
    except OSError as error:
        error.filename = path
        raise
    finally:
        os.close(fd)


def read_number(path: str) -> int | None:
    """A file that holds one number."""
    text = (read_file(path, 64) or b"").strip()
    return int(text) if text.isdigit() else None


def read_counter(path: str, name: bytes) -> int | None:
    """One ``name number`` line of a file of such lines."""
    for line in (read_file(path, 1 << 16) or b"").splitlines():
        key, _, value = line.partition(b" ")
        if key == name and value.strip().isdigit():
            return int(value)
    return None


def limit_resources(address_space: int | None) -> None:
    """No core file, which would be left behind; and the address space, if limited."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if address_space is not None:
        resource.setrlimit(resource.RLIMIT_AS, (address_space, address_space))


def main() -> None:
    control, report, out, err = (int(text) for text in sys.argv[1:5])
    for fd in (control, report, out, err):
        os.set_inheritable(fd, False)
    try:
        _Guard(control, report, out, err).main()
    except Exception as error:  # noqa: BLE001 - the other end must hear of anything
        with contextlib.suppress(OSError):
            send(report, ("broken", f"{type(error).__name__}: {error}"))


if __name__ == "__main__":
    main()
