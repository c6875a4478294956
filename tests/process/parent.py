"""A stand-in for Arriero, to be killed: ``parent.py SCRATCH LIMIT COMMAND...`` starts the command.

Prints ``started``, then every line of the command. LIMIT is a cgroup limit in bytes, or 0.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from arriero.base.words import LimitKind
from arriero.process import Limit, start


def say(line: str) -> None:
    os.write(1, f"{line}\n".encode())  # in one piece: two threads say things


# A job in the background of a shell starts with SIGINT ignored, one of nohup with SIGHUP ignored,
# and would not die of it.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
size = int(sys.argv[2])
with start(
    sys.argv[3:],
    env=dict(os.environ),
    on_line=say,
    scratch=Path(sys.argv[1]),
    limit=Limit(size, LimitKind.CGROUP) if size else None,
):
    say("started")
    time.sleep(600)
