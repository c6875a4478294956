"""Settings of a server that stays up: one table, from which options, schema and docs come.

A setting is given as an option (``--hold 10m``), in the environment (``ARRIERO_SERVE_HOLD=10m``) or
in a TOML file (``hold = "10m"``), and counts in this order.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from arriero.base import limits
from arriero.base.errors import UsageError
from arriero.base.sizes import MIB, parse_duration, parse_size
from arriero.serve.apis.interface import Continue

PREFIX: Final = "ARRIERO_SERVE_"
COMMAND: Final = "command"
"""The key of the file that holds the llama-server command, as an array of words."""


class Gates(StrEnum):
    """Whether a command is changed so that the engine stays up (``--gates``)."""

    AUTO = "auto"
    OFF = "off"


class KeepContext(StrEnum):
    """Whether what slots hold is saved and restored (``--keep-context``)."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class Restarts:
    """At most ``count`` restarts within ``seconds``; ``0/1`` means none."""

    count: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.count}/{self.seconds:g}"


@dataclass(frozen=True, slots=True)
class Listen:
    """Where clients connect: a UNIX socket, else an address and a port."""

    host: str
    port: int
    socket: Path | None = None

    def __str__(self) -> str:
        if self.socket is not None:
            return str(self.socket)
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings, read. Each field is documented in :data:`TABLE` under its name.

    Times are seconds, sizes bytes. A time of 0 in ``hold`` or ``drain`` means: do not wait.
    """

    listen: Listen | None = None
    """None: where the command says."""
    api_key_file: tuple[Path, ...] = ()
    allow_no_key: bool = False
    allow_origin: tuple[str, ...] = ()
    allow_host: tuple[str, ...] = ()
    hold: float = 600.0
    continue_: Continue = Continue.GREEDY
    restarts: Restarts = Restarts(5, 600.0)
    hang_after: float = 60.0
    drain: float = 30.0
    gates: Gates = Gates.AUTO
    keep_context: KeepContext = KeepContext.AUTO
    memory_reserve: int = 256 * MIB
    queue: int = 1024
    max_connections: int = 2048
    max_body: int = 256 * MIB
    max_header: int = 65536
    header_timeout: float = 20.0
    body_timeout: float = 30.0
    write_timeout: float = 60.0
    idle_timeout: float = 75.0
    keepalive_comment: float = 5.0
    log_dir: Path | None = None
    """None: a directory of the run that is removed at its end."""
    log_size: int = 64 * MIB
    engine: str | None = None
    config: Path | None = None


# --- reading ------------------------------------------------------------------------------------


def _seconds(text: str) -> float:
    return 0.0 if text.strip() in {"0", "0s", "0.0"} else parse_duration(text)


def _count(text: str) -> int:
    if not re.fullmatch(r"\d{1,9}", text.strip(), re.ASCII):
        raise UsageError(f"{text!r} is not a number", hint="write a whole number, like 100")
    return int(text)


def _switch(text: str) -> bool:
    word = text.strip().lower()
    if word in {"1", "true", "yes", "on"}:
        return True
    if word in {"0", "false", "no", "off", ""}:
        return False
    raise UsageError(f"{text!r} is neither on nor off", hint="write on or off")


def _word(kind: type[StrEnum]) -> Callable[[str], StrEnum]:
    def read(text: str) -> StrEnum:
        try:
            return kind(text.strip().lower())
        except ValueError:
            words = ", ".join(kind)
            raise UsageError(f"cannot be {text!r}", hint=f"write one of {words}") from None

    return read


def _restarts(text: str) -> Restarts:
    count, slash, time = text.partition("/")
    if not slash:
        raise UsageError(
            f"{text!r} does not say in which time", hint="write it like 5/600 or 5/10m"
        )
    return Restarts(_count(count), parse_duration(time))


def parse_listen(text: str) -> Listen:
    """Read ``8080``, ``127.0.0.1:8080``, ``[::1]:8080``, ``:8080`` or ``/run/x.sock``.

    Raises:
        UsageError: It is none of these.
    """
    text = text.strip().removeprefix("http://").removesuffix("/") if "://" in text else text.strip()
    if text.endswith(".sock"):
        return Listen("", 0, limits.expanded(text))
    match = re.fullmatch(
        r"(?:(?:\[([0-9A-Fa-f:.%\w]+)\]|([^\[\]:/\s]*)):)?(\d{1,5})", text, re.ASCII
    )
    if match is None or int(match[3]) > 65535:
        raise UsageError(
            f"{text!r} is no address to listen on",
            hint="write it like 127.0.0.1:8080, [::1]:8080, 8080 or /run/llama.sock",
        )
    return Listen(match[1] or match[2] or "127.0.0.1", int(match[3]))


def _host(text: str) -> str:
    if not re.fullmatch(r"[\w.\-:\[\]]{1,255}", text.strip(), re.ASCII):
        raise UsageError(f"{text!r} is no name of a host", hint="write it like llama.example.org")
    return text.strip().lower()


def _origin(text: str) -> str:
    if not re.fullmatch(r"\*|[a-z][a-z0-9+.\-]*://[^\s/]{1,255}", text.strip().lower(), re.ASCII):
        raise UsageError(f"{text!r} is no origin", hint="write it like https://chat.example.org")
    return text.strip().lower()


def _path(text: str) -> Path:
    return limits.expanded(text)


# --- the table ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: what it is called, what it takes and what it is for.

    Attributes:
        attribute: Of :class:`Settings`.
        name: Of the option without its dashes, which is also the key in the file.
        metavar: What is written behind the option; empty for a switch.
        default: As a user would write it; empty where there is none.
        help: One sentence.
        parse: Reads the text; raises ``UsageError``.
        many: It can be given several times.
        live: A change counts after SIGHUP, without a restart.
        example: A value that is valid, for docs and tests.
        words: The values, where there are only these.
        rare: It is left out of ``--help``: few will ever need another value.
    """

    attribute: str
    name: str
    metavar: str
    default: str
    help: str
    parse: Callable[[str], Any]
    many: bool = False
    live: bool = False
    example: str = ""
    words: tuple[str, ...] = ()
    rare: bool = False

    @property
    def option(self) -> str:
        return f"--{self.name}"

    @property
    def env(self) -> str:
        return PREFIX + self.name.upper().replace("-", "_")

    @property
    def switch(self) -> bool:
        """It is given without a value."""
        return not self.metavar


def _of(
    name: str,
    metavar: str,
    default: str,
    help: str,
    parse: Callable[[str], Any],
    **more: Any,
) -> Setting:
    attribute = "continue_" if name == "continue" else name.replace("-", "_")
    return Setting(attribute, name, metavar, default, help, parse, **more)


def _choice(name: str, kind: type[StrEnum], default: str, help: str) -> Setting:
    words = tuple(kind)
    return _of(name, "|".join(words), default, help, _word(kind), words=words, example=default)


TABLE: Final = (
    _of("listen", "ADDRESS", "", "Listen here, not where the command says.", parse_listen,
        example="127.0.0.1:8080"),
    _of("api-key-file", "FILE", "",
        "Ask clients for one of the keys in this file, one a line.",
        _path, many=True, live=True, example="keys.txt"),
    _of("allow-no-key", "", "off", "Listen beyond this machine without a key.", _switch,
        example="on"),
    _of("allow-origin", "ORIGIN", "",
        "Let pages from there read answers; * is any.", _origin, many=True, live=True,
        example="https://chat.example.org"),
    _of("allow-host", "NAME", "",
        "Answer browsers that use this name.", _host, many=True, live=True,
        example="llama.example.org"),
    _of("hold", "TIME", "600s", "Let requests wait this long for the engine.",
        _seconds, live=True, example="2m"),
    _choice("continue", Continue, "greedy",
        "Continue broken answers."),
    _of("restarts", "N/TIME", "5/600s",
        "Give up after N restarts in that time.", _restarts, live=True,
        example="3/10m"),
    _of("hang-after", "TIME", "60s",
        "End an engine without progress after this long.",
        _seconds, live=True, example="2m"),
    _of("drain", "TIME", "30s", "Let requests finish for this long at the end.",
        _seconds, live=True, example="1m"),
    _choice("gates", Gates, "auto",
        "Change what would end this engine here."),
    _choice("keep-context", KeepContext, "auto",
        "Keep what slots hold over a restart; auto does where the build can."),
    _of("memory-reserve", "SIZE", "256MiB",
        "Restart the engine in good time when less than this is left of the host's memory.",
        parse_size, live=True, rare=True, example="1GiB"),
    _of("queue", "N", "1024", "Let at most this many requests wait; refuse others.", _count,
        live=True, rare=True, example="100"),
    _of("max-connections", "N", "2048", "Keep at most this many connections of clients open.",
        _count, live=True, rare=True, example="100"),
    _of("max-body", "SIZE", "256MiB", "Refuse a request with a longer body.", parse_size, live=True,
        rare=True, example="1GiB"),
    _of("max-header", "SIZE", "64KiB", "Refuse a request with longer headers.", parse_size,
        live=True, rare=True, example="16KiB"),
    _of("header-timeout", "TIME", "20s",
        "Close a connection whose headers do not come within this time.", _seconds, live=True,
        rare=True, example="5s"),
    _of("body-timeout", "TIME", "30s",
        "Refuse a request whose body stops coming for this long.", _seconds, live=True,
        rare=True, example="10s"),
    _of("write-timeout", "TIME", "60s",
        "Close a connection that takes nothing of its answer for this long.", _seconds, live=True,
        rare=True, example="2m"),
    _of("idle-timeout", "TIME", "75s",
        "Close a connection that asks nothing for this long.", _seconds, live=True,
        rare=True, example="5s"),
    _of("keepalive-comment", "TIME", "5s",
        "Send a comment into a stream that waits, after and every so many seconds.", _seconds,
        live=True, rare=True, example="10s"),
    _of("log-dir", "DIR", "", "Keep the engine's log in this directory.", _path, example="logs"),
    _of("log-size", "SIZE", "64MiB", "Keep at most this much of the engine's log.", parse_size,
        rare=True, example="1MiB"),
    _of("engine", "PATH", "", "Use this llama-server instead of the command's own.", str,
        example="llama-server"),
    _of("config", "FILE", "", "Read settings, and a command, from this file.",
        _path, example="serve.toml"),
)  # fmt: skip
"""Every setting, in the order in which help and docs show them."""

BY_NAME: Final = {setting.name: setting for setting in TABLE}


# --- what others make of the table --------------------------------------------------------------


def changed(old: Settings, new: Settings) -> tuple[list[Setting], list[Setting]]:
    """Which settings differ: those that count at once, and those that need a new start."""
    differ = [one for one in TABLE if getattr(old, one.attribute) != getattr(new, one.attribute)]
    return [one for one in differ if one.live], [one for one in differ if not one.live]


def json_schema() -> dict[str, Any]:
    """The JSON Schema of the TOML file, as editors take it."""
    properties: dict[str, Any] = {
        COMMAND: {
            "type": "array",
            "items": {"type": "string"},
            "description": "The llama-server command, where none is given after --.",
        }
    }
    for setting in TABLE:
        if setting.name == "config":
            continue
        properties[setting.name] = {"description": setting.help, **_type(setting)}
        if setting.default:
            properties[setting.name]["default"] = (
                _switch(setting.default) if setting.switch else setting.default
            )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Settings of arriero serve",
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
    }


def _type(setting: Setting) -> dict[str, Any]:
    if setting.switch:
        return {"type": "boolean"}
    if setting.words:
        return {"enum": list(setting.words)}
    one: dict[str, Any] = {"type": "string"}
    if setting.many:
        return {"anyOf": [one, {"type": "array", "items": one}]}
    if setting.default[:1].isdigit() and "/" not in setting.default:
        return {"type": ["string", "number"]}
    return {"type": ["string", "integer"]} if setting.name == "listen" else one
