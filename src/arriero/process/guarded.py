"""Arriero's side of a guard: the pipes to it, and the cleanup if it is gone."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import time
from typing import Any, Final

from arriero.process import guard
from arriero.process.model import Job, ProcessError
from arriero.process.refused import start_error

assert sys.platform != "win32", "see plain.py"  # noqa: S101 - mypy knows this form

_START_SECONDS: Final = 60.0
END_SECONDS: Final = 60.0
"""A killed process may take this long, because a driver first frees a hundred gigabytes."""


class GuardLink:
    """The pipes to one guard.

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

    def begin(self, job: Job, file: str) -> int:
        """Start the command; its process id.

        Raises:
            NotFoundError: There is no such program.
            ProcessError: It cannot be executed, or its limit cannot be set.
        """
        answer = self.ask(job)
        if answer[0] == "started":
            return int(answer[1])
        raise start_error(answer[1], answer[2], answer[3], file, job)

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
            self._process.wait(END_SECONDS)
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
        deadline = time.monotonic() + END_SECONDS
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
