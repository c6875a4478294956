"""The environment, the port and the scratch directory for starting a command."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_OURS: Final = ("LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PID", "NOTIFY_SOCKET", "WATCHDOG_USEC")
"""Variables from systemd for Arriero; with them a child would speak in Arriero's place."""


def clean_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Arriero's environment without the variables for Arriero alone (``ARRIERO_*``, systemd's).

    All others belong to the user and stay: ``LLAMA_ARG_*``, device visibility, library paths.
    """
    return {
        name: value
        for name, value in (os.environ if environ is None else environ).items()
        if not name.startswith("ARRIERO_") and name not in _OURS
    }


def temporary_directory() -> Path:
    """The directory for scratch directories: ``TMPDIR``, ``TEMP``, ``TMP``, or the system's own.

    ``tempfile.gettempdir`` finds the same by writing a file, which stays if it is killed.
    """
    if os.name == "nt":
        return Path(tempfile.gettempdir())
    named = (os.environ.get(name) for name in ("TMPDIR", "TEMP", "TMP"))
    for text in (*named, "/tmp", "/var/tmp"):  # noqa: S108 - only looked at here
        if text and Path(text).is_dir() and os.access(text, os.W_OK | os.X_OK):
            return Path(text).absolute()
    return Path.cwd()


def free_port() -> int:
    """A TCP port of the loopback interface on which nothing listens now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
