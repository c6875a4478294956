"""The environment, the port and the scratch space that a command is started with."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_OURS: Final = ("LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PID", "NOTIFY_SOCKET", "WATCHDOG_USEC")
"""What systemd tells Arriero, and what would make a child speak in its place."""


def clean_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Arriero's environment without what is meant for Arriero alone (``ARRIERO_*``, systemd's).

    Everything else is the user's and stays: ``LLAMA_ARG_*``, device visibility, library paths.
    """
    return {
        name: value
        for name, value in (os.environ if environ is None else environ).items()
        if not name.startswith("ARRIERO_") and name not in _OURS
    }


def temporary_directory() -> Path:
    """Where scratch directories go: ``TMPDIR``, ``TEMP``, ``TMP``, or the system's own.

    ``tempfile.gettempdir`` finds the same, by writing a file: killed then, it leaves that behind.
    """
    if os.name == "nt":
        return Path(tempfile.gettempdir())
    named = (os.environ.get(name) for name in ("TMPDIR", "TEMP", "TMP"))
    for text in (*named, "/tmp", "/var/tmp"):  # noqa: S108 - only looked at here
        if text and Path(text).is_dir() and os.access(text, os.W_OK | os.X_OK):
            return Path(text).absolute()
    return Path.cwd()


def free_port() -> int:
    """A TCP port of the loopback interface that nothing listens on now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
