"""A command as it is started behind the proxy: where only Arriero gets in."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from arriero.command import Command
from arriero.engine import Engine
from arriero.launch.builds import SEEN
from arriero.process import free_port, temporary_directory
from arriero.serve.http.interface import Address

_FRONT: Final = (
    "--host", "--port", "--reuse-port", "--api-key", "--api-key-file", "--ssl-key-file",
    "--ssl-cert-file",
)  # fmt: skip
"""What the front door does in the engine's place."""
QUIET: Final = {"GGML_NO_BACKTRACE": "1"}
"""A debugger attached to a dying server takes longer than a restart."""
_METRICS: Final = "--metrics"
_KEY_VARIABLE: Final = "LLAMA_API_KEY"
_SOCKETS_SEEN: Final = SEEN[0]
_SOCKET: Final = "engine.sock"
_LONGEST_SOCKET: Final = 100
"""Bytes of the path of a socket; systems allow 103 to 107."""


@dataclass(frozen=True)
class Private:
    """What is really started."""

    command: Command
    environ: Mapping[str, str] = field(repr=False)
    address: Address
    scratch: Path


def private(command: Command, engine: Engine) -> Private:
    """The command with a private address, and the log that the verdict on its end needs.

    The address is a UNIX socket in a directory for this start alone, where the build can listen on
    one; otherwise a loopback port with a key made for this start. Options that say where to listen,
    keys and certificates are the front door's: they go, as flags and as variables.
    """
    scratch = _scratch()
    command = engine.show_sizes(command.with_program(str(engine.path)))
    hidden = set()
    for name in _FRONT:
        flag = command.flags.get(name)
        if flag is not None:
            hidden |= {flag.env, flag.env_off} - {None}
        if command.has(name):
            command = command.without(name)
    if command.flags.get(_METRICS) is not None and not command.switch(_METRICS):
        command = command.with_value(_METRICS, "on")  # the page shows tokens
    socket = scratch / _SOCKET
    if listens_on_sockets(engine) and len(os.fsencode(socket)) <= _LONGEST_SOCKET:
        address = Address(socket)
        command = command.with_value("--host", str(socket))
        added = {}
    else:
        address = Address(None, free_port(), secrets.token_urlsafe(24))
        command = command.with_value("--host", "127.0.0.1")
        command = command.with_value("--port", str(address.port))
        added = {_KEY_VARIABLE: address.key}
    base = {k: v for k, v in command.exec_environ.items() if k not in hidden}
    quiet = {k: v for k, v in QUIET.items() if k not in command.environ}
    return Private(command, engine.environment({**base, **quiet, **added}), address, scratch)


def listens_on_sockets(engine: Engine) -> bool:
    """Whether it can listen on a UNIX socket, as far as builds were seen."""
    return sys.platform != "win32" and engine.build is not None and engine.build >= _SOCKETS_SEEN


def _scratch() -> Path:
    """A directory for one start, not made yet: the guard of the process makes and removes it."""
    return temporary_directory() / f"arriero-{os.getpid()}-{os.urandom(4).hex()}"
