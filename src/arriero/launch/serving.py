"""What a client must know to talk to the server that a command starts."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from arriero.base import limits
from arriero.base.errors import UsageError
from arriero.command.command import Command, ModelSource
from arriero.command.secret import split_list


class Mode(StrEnum):
    """Which requests the server answers."""

    TEXT = "text"
    EMBEDDING = "embedding"
    RERANK = "rerank"


@dataclass(frozen=True)
class Serving:
    """Address, keys and endpoints.

    ``socket`` is the path of a UNIX socket that is used instead of host and port.
    """

    host: str
    port: int
    socket: str | None
    tls: bool
    prefix: str
    api_keys: tuple[str, ...] = field(repr=False)
    mode: Mode
    router: bool
    metrics: bool
    slots: bool

    def url(self, path: str) -> str:
        """The address of an endpoint such as ``/health``."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104 - compared
        host = f"[{host}]" if ":" in host else host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}{self.prefix}{path}"

    def headers(self) -> dict[str, str]:
        """The headers that let a request through.

        Behind ``--api-prefix`` even ``/health`` asks for the key (seen on builds 10068 and 10434).
        """
        return {"Authorization": f"Bearer {self.api_keys[0]}"} if self.api_keys else {}


def serving_of(command: Command, cwd: Path) -> Serving:
    """Read from a command how its server will be reached.

    Args:
        cwd: Where relative paths start.

    Raises:
        UsageError: The port is not a number, or the file of keys cannot be read.
    """
    host = command.value("--host") or "127.0.0.1"
    port = command.value("--port") or "8080"
    if not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise UsageError(f"--port {port} is not a port number")
    embedding = command.switch("--embedding")
    rerank = command.switch("--rerank") or (embedding and command.value("--pooling") == "rank")
    return Serving(
        host=host,
        port=int(port),
        socket=host if host.endswith(".sock") else None,
        tls=command.has("--ssl-key-file") and command.has("--ssl-cert-file"),
        prefix=command.value("--api-prefix") or "",
        api_keys=_api_keys(command, cwd),
        mode=Mode.RERANK if rerank else Mode.EMBEDDING if embedding else Mode.TEXT,
        router=command.model_source()[0] is ModelSource.ROUTER,
        metrics=command.switch("--metrics") is True,
        slots=command.switch("--slots") is not False,
    )


def _api_keys(command: Command, cwd: Path) -> tuple[str, ...]:
    """Every key the server accepts: variable, flags and file add up, whatever its warning says."""
    flag = command.flags.get("--api-key")
    variable = command.environ.get(flag.env, "") if flag and flag.env else ""
    keys = [key for value in (variable, *command.values("--api-key")) for key in split_list(value)]
    path = command.value("--api-key-file")
    if path:
        try:
            with limits.open_regular(cwd / path) as file:
                lines = file.read(limits.KEY_FILE).decode("utf-8", "replace").splitlines()
        except OSError as error:
            raise UsageError(f"cannot read --api-key-file {path}: {error.strerror}") from None
        keys += [line for line in lines if not line.startswith("#")]
    return tuple(key for key in keys if key)
