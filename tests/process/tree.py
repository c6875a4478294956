"""A command that does what a badly behaved server might: ``tree.py PIDS [exit]``.

Appends the pid of each of its processes to the file PIDS, prints ``ready``, then waits, or with
``exit`` ends at once and leaves its children behind.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

NOTED = Path(sys.argv[1])


def note() -> None:
    with NOTED.open("a") as file:
        file.write(f"{os.getpid()}\n")


def child(work: Callable[[], None]) -> None:
    if os.fork() == 0:
        with contextlib.suppress(BaseException):
            work()
        os._exit(0)


def stubborn() -> None:
    os.setsid()
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        with contextlib.suppress(OSError):
            signal.signal(number, signal.SIG_IGN)
    note()
    time.sleep(600)


def stopped() -> None:
    note()
    os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(600)


def daemon() -> None:
    os.setsid()
    child(nameless)


def nameless() -> None:
    note()
    os.closerange(0, 100)
    os.execve("/bin/sleep", ["sleep", "600"], {})  # noqa: S606 - nothing of us in it


def threaded() -> None:
    import threading

    note()
    threading.Thread(target=time.sleep, args=(600,)).start()
    import ctypes

    # Only the first thread ends: the process then looks like a zombie and lives on.
    ctypes.CDLL(None).pthread_exit(None)


def restless() -> None:
    """Always a new pid: each generation forks the next and ends."""
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        if os.fork():
            os._exit(0)
        time.sleep(0.002)


WORKS = [stubborn, stopped, daemon, threaded, restless]
for each in WORKS:
    child(each)
note()
while len(NOTED.read_text().splitlines()) < len(WORKS):
    time.sleep(0.01)
print("ready", flush=True)
if "exit" not in sys.argv[2:]:
    time.sleep(600)
