"""Start a command under a guard, watch it, surely end it. Linux; macOS without the subreaper."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from arriero.process import guard, guarded, orders
from arriero.process.memory import Sampler
from arriero.process.model import Exit, Limit, MemoryUse, ProcessError
from arriero.process.output import Output
from arriero.process.refused import scratch_error

assert sys.platform != "win32", "see plain.py"  # noqa: S101 - mypy knows this form


class Running:
    """A command that was started. As a context manager, its end is the end of the whole tree.

    ``pid`` is the command itself. Lines reach ``on_line`` in another thread, in order; ``on_line``
    must not wait for the process. ``dropped`` counts bytes of output lost to a slow ``on_line``.
    """

    def __init__(self, link: guarded.GuardLink, pid: int, output: Output, sampler: Sampler) -> None:
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
        if not self._over.wait(guarded.END_SECONDS):
            self._link.close()
        found = self.wait(guarded.END_SECONDS)
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
        self._over.wait(guarded.END_SECONDS)
        self._link.close()
        self._thread.join(guarded.END_SECONDS)

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
    file = orders.resolve(argv, env, cwd)
    job = orders.job_of(argv, file, env, cwd)
    place = orders.put_limit(job, limit)
    if scratch is not None:
        job["scratch"] = os.fsencode(scratch.absolute())
    output = Output(on_line, log_file)
    link: guarded.GuardLink | None = None
    try:
        link = guarded.GuardLink()
        if place is not None:
            name = f"arriero-{link.marker.replace(':', '-')}"
            place = replace(place, path=place.path / name)
            job["cgroup"] = os.fsencode(place.path)
        pid = link.begin(job, file)
        return Running(link, pid, output, Sampler(pid, place))
    except BaseException:
        if link is None or not link.handed_over:
            output.finish()
        if link is not None:
            if not link.handed_over:
                os.close(link.outputs[0])
            link.close()
        raise


@contextlib.contextmanager
def scratch_directory(parent: Path) -> Iterator[Path]:
    """A new directory ``arriero-*`` in ``parent`` that is gone afterwards, however Arriero ends.

    Raises:
        ProcessError: It cannot be made.
    """
    path = parent.absolute() / f"arriero-{os.getpid()}-{os.urandom(4).hex()}"
    link = guarded.GuardLink()
    os.close(link.outputs[0])
    try:
        answer = link.ask({"scratch": os.fsencode(path)})
        if answer[0] == "failed":
            raise scratch_error(path, answer[3])
        yield path
    finally:
        link.close()
