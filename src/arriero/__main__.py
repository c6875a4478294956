"""The ``arriero`` command and ``python -m arriero``."""

from __future__ import annotations

import os
import signal
import sys


def main() -> None:
    """Get the process into a state that everything else may rely on, then run the command."""
    # A Ctrl-C while modules load must not be a traceback; nothing is open yet.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: os._exit(130))
    # Standard streams that the caller closed: files opened later must not take their place.
    while (descriptor := os.open(os.devnull, os.O_RDWR)) < 3:
        pass
    os.close(descriptor)
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: PTH123, SIM115 - until the exit
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: PTH123, SIM115
    from arriero.cli import main

    main()


if __name__ == "__main__":
    main()
