"""``arriero export``: files with which others start a supervised server, or stand before it."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from arriero.base.errors import UsageError
from arriero.base.paths import StrPath, texts
from arriero.command import Command, builtin_flags, parse_command
from arriero.command.secret import MASK
from arriero.jobs import _export_texts as formats
from arriero.jobs._baseline import refuse_printing
from arriero.jobs._listening import is_private, listen_of
from arriero.launch import Serving, serving_of
from arriero.record import Export
from arriero.serve.settings import BY_NAME, Listen
from arriero.serve.settings_sources import Sources, Value

Target = Literal["systemd", "compose", "llama-swap", "caddy"]
TARGETS: Final[tuple[Target, ...]] = ("systemd", "compose", "llama-swap", "caddy")
_KEYS: Final = "api-keys.txt"
_PATHS: Final = (
    *("-m", "-md", "-mm", "--lora", "--grammar-file", "--chat-template-file", "--ssl-key-file"),
    *(
        "--api-key-file",
        "--ssl-cert-file",
        "--path",
        "--slot-save-path",
        "--models-dir",
        "--models-preset",
    ),
)
"""Flags whose values are files or directories: they get absolute paths."""


def export(target: Target, words: Sequence[StrPath], sources: Sources) -> Export:
    """The file for one target; nothing is started and nothing is asked.

    Raises:
        UsageError: No command, one that cannot be served, or a setting that is wrong.
    """
    plan = _Exported.of(texts(words), sources)
    make: Mapping[str, Callable[[_Exported], tuple[str, str]]] = {
        "systemd": _systemd, "compose": _compose, "llama-swap": _swap, "caddy": _caddy,
    }  # fmt: skip
    name, text = make[target](plan)
    return Export(target=target, name=name, text=text, notes=tuple(plan.notes))


@dataclass
class _Exported:
    """A command for other hands: absolute paths, no secret in it."""

    command: Command
    options: dict[str, Value]
    serving: Serving
    listen: Listen
    drain: float
    queue: int
    hosts: tuple[str, ...]
    cwd: Path
    notes: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, words: list[str], sources: Sources) -> _Exported:
        settings, cwd = sources.settings(), sources.cwd
        words = words or list(sources.command())
        if not words:
            raise UsageError(
                "no llama-server command given",
                hint="write it after --, as in: arriero export systemd -- llama-server -m m.gguf",
                id="no-command",
            )
        command = parse_command(words, builtin_flags(), sources.environ)
        refuse_printing(command)
        serving = serving_of(command, cwd)
        made = cls(
            command=_absolute(command, cwd),
            options=_absolute_options(sources.options, cwd),
            serving=serving,
            listen=listen_of(serving, settings, cwd),
            drain=settings.drain,
            queue=settings.queue,
            hosts=settings.allow_host,
            cwd=cwd,
        )
        made._without_keys()
        return made

    @property
    def model(self) -> str:
        """A short name for the model, fit for names of services."""
        stem = Path(self.command.model_source()[1] or "llama").name.removesuffix(".gguf")
        return re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-.") or "llama"

    def argv(self, program: Sequence[str], **more: Value) -> list[str]:
        """``arriero serve … -- llama-server …``."""
        words = [*program, "serve"]
        for name, value in {**self.options, **more}.items():
            if BY_NAME[name].switch:
                words.append(f"--{name}")
            else:
                for one in (value,) if isinstance(value, str) else value:
                    words += [f"--{name}", one]
        command = self.command
        return [*words, "--", *command.words[command.prefix.assignments :]]

    @property
    def environ(self) -> dict[str, str]:
        """The variables that the command itself sets before its program."""
        words = self.command.words[: self.command.prefix.assignments]
        return {name: value for name, _, value in (word.partition("=") for word in words)}

    def _without_keys(self) -> None:
        """No secret goes into a file that others read: keys come from a file of their own."""
        flag = self.command.flags.get("--api-key")
        if flag is not None and self.command.has("--api-key"):
            self.command = self.command.without("--api-key")
            path = str(self.cwd / _KEYS)
            held = self.options.get("api-key-file", ())
            self.options["api-key-file"] = (*((held,) if isinstance(held, str) else held), path)
            self.notes.append(f"put the key into {path}, one a line, readable by the service alone")
        if self.command.safe_argv() != self.command.words:
            words = self.command.safe_argv()
            self.command = parse_command(words, self.command.flags, {})
            self.notes.append(f"fill in what is left out as {MASK}")


def _absolute(command: Command, cwd: Path) -> Command:
    """The command with absolute paths, since a service starts elsewhere."""
    program = command.program
    if "/" in program and not program.startswith("/"):
        command = command.with_program(str(cwd / program))
    for flag in _PATHS:
        value = command.value(flag)
        if value and command.flags.knows(flag) and not value.startswith(("/", "~")):
            command = command.with_value(flag, str(cwd / value))
    return command


def _absolute_options(options: Mapping[str, Value], cwd: Path) -> dict[str, Value]:
    made: dict[str, Value] = {}
    for name, value in options.items():
        if BY_NAME[name].metavar in {"FILE", "DIR"}:
            values = (value,) if isinstance(value, str) else value
            paths = tuple(str(cwd / Path(one).expanduser()) for one in values)
            made[name] = paths if BY_NAME[name].many else paths[0]
        else:
            made[name] = value
    return made


def program() -> list[str]:
    """How this Arriero is started, wherever from."""
    found = shutil.which("arriero")
    beside = Path(sys.executable).with_name("arriero")
    if beside.is_file():
        return [str(beside)]
    return [found] if found else [sys.executable, "-m", "arriero"]


# --- the targets --------------------------------------------------------------------------------


def _systemd(made: _Exported) -> tuple[str, str]:
    name = f"llama-{made.model}.service"
    made.notes.append(f"sudo cp it to /etc/systemd/system/{name}, then: systemctl enable --now")
    text = formats.unit(
        model=made.model,
        argv=made.argv(program()),
        environ=made.environ,
        cwd=str(made.cwd),
        stop_s=made.drain + 30,
    )
    return name, text


def _compose(made: _Exported) -> tuple[str, str]:
    mounts = dict[str, str]()

    def inside(path: str) -> str:
        directory = str(Path(path).parent)
        place = mounts.setdefault(directory, f"/data/{len(mounts) + 1}")
        return f"{place}/{Path(path).name}"

    command = made.command
    for flag in _PATHS:
        path = command.value(flag)
        if path and path.startswith("/"):
            command = command.with_value(flag, inside(path))
    if command.value("-m") != made.command.value("-m") or "/" in command.program:
        made.notes.append("the engine in the container is that of arriero[engine], not your own")
    made.command = command.with_program("llama-server")
    for name, value in list(made.options.items()):
        if BY_NAME[name].metavar == "FILE":
            values = (value,) if isinstance(value, str) else value
            moved = tuple(inside(one) for one in values)
            made.options[name] = moved if BY_NAME[name].many else moved[0]
    made.options.pop("engine", None)
    more: dict[str, Value] = {"listen": f"0.0.0.0:{_PORT}"}
    if not (made.serving.api_keys or made.options.get("api-key-file")):
        more["allow-no-key"] = "on"  # the port is published on the loopback alone
    open_ = not is_private(made.listen)
    published = f"{'' if open_ else '127.0.0.1:'}{made.listen.port or _PORT}:{_PORT}"
    made.notes.append("give the container the GPU, with `devices` or `gpus`, if it has to have one")
    return "compose.yaml", formats.compose(
        argv=made.argv([], **more),
        environ=made.environ,
        mounts=mounts,
        published=published,
        port=_PORT,
        prefix=made.serving.prefix,
        stop_s=made.drain + 30,
    )


_PORT: Final = 8080


def _swap(made: _Exported) -> tuple[str, str]:
    made.notes.append("merge it into the config.yaml that you have")
    made.notes.append("llama-swap kills what has not ended after 5 seconds, so --drain is 4s")
    more: dict[str, Value] = {"listen": "127.0.0.1:${PORT}", "drain": "4s"}
    return "config.yaml", formats.swap(
        model=made.model,
        argv=made.argv(program(), **more),
        environ=made.environ,
        prefix=made.serving.prefix,
        limit=made.queue,
    )


def _caddy(made: _Exported) -> tuple[str, str]:
    host = next(iter(made.hosts), "llama.example.org")
    if made.hosts:
        made.notes.append(f"{host} is the first --allow-host")
    else:
        made.notes.append(f"put your name in place of {host}, and give it to serve: --allow-host")
    served = shlex.join(made.argv(["arriero"]))
    made.notes.append(f"behind it runs: {served}")
    return "Caddyfile", formats.caddy(host=host, listen=made.listen, tls=made.serving.tls)
