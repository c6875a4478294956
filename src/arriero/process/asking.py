"""Commands that answer and end, such as ``llama-server --version``: both streams and the status."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from arriero.process import guard, guarded, orders
from arriero.process.model import Completed, ProcessError

assert sys.platform != "win32", "see plain.py"  # noqa: S101 - mypy knows this form


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
    file = orders.resolve(argv, env, cwd)
    job = orders.job_of(argv, file, env, cwd)
    deadline = time.monotonic() + timeout
    link = guarded.GuardLink(separate=True)

    def answer() -> Completed:
        return _answer(link, file, timeout, deadline, max_output)

    try:
        link.begin(job, file)
        yield answer
    finally:
        try:
            link.close()
        finally:
            for fd in link.outputs:
                os.close(fd)


def _answer(
    link: guarded.GuardLink, file: str, timeout: float, deadline: float, max_output: int
) -> Completed:
    """Both streams to their end, and the status."""
    kept = {fd: bytearray() for fd in link.outputs}
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
