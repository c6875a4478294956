"""Where a supervised server listens, and whether it may."""

from __future__ import annotations

import ipaddress
from pathlib import Path

from arriero.base import limits
from arriero.base.errors import UsageError
from arriero.command import Command
from arriero.launch import Serving
from arriero.serve.access import keys_in
from arriero.serve.settings import Listen, Settings


def listen_of(serving: Serving, settings: Settings, cwd: Path) -> Listen:
    """Where clients connect: where the settings say, else where the command does."""
    if settings.listen is not None:
        return settings.listen
    if serving.socket is not None:
        return Listen("", 0, cwd / limits.expanded(serving.socket))
    return Listen(serving.host.strip("[]"), serving.port)


def refuse_open(listen: Listen, serving: Serving, settings: Settings) -> None:
    """Raise for an address that others can reach and that asks for no key.

    Raises:
        UsageError: It is such an address, or a key file cannot be read or holds no key.
    """
    keys = [key for path in settings.api_key_file for key in keys_in(path)]
    if settings.allow_no_key or serving.api_keys or keys or is_private(listen):
        return
    raise UsageError(
        f"{listen} can be reached from other machines and there is no key",
        hint="add --api-key-file FILE, listen on 127.0.0.1, or add --allow-no-key",
        id="open-without-key",
    )


def tls_of(command: Command, cwd: Path) -> tuple[Path, Path] | None:
    """The files of certificate and key that the command names; None without them.

    Raises:
        UsageError: One of them cannot be read.
    """
    names = ("--ssl-cert-file", "--ssl-key-file")
    typed = [command.value(name) for name in names]
    if not all(typed):
        return None
    found = []
    for name, value in zip(names, typed, strict=True):
        path = cwd / limits.expanded(str(value))
        if not path.is_file():
            raise UsageError(f"there is no file {path}, named by {name}", hint="correct the path")
        found.append(path)
    return found[0], found[1]


def is_private(listen: Listen) -> bool:
    """Whether only this machine reaches it."""
    if listen.socket is not None or listen.host in {"localhost", "localhost.localdomain"}:
        return True
    try:
        return ipaddress.ip_address(listen.host.partition("%")[0]).is_loopback
    except ValueError:
        return False
