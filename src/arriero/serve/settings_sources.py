"""Where settings come from: options, the environment, a TOML file."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from arriero.base import limits
from arriero.base.errors import NotFoundError, UsageError
from arriero.serve.settings import BY_NAME, COMMAND, TABLE, Listen, Setting, Settings

Value = str | tuple[str, ...]


@dataclass(frozen=True)
class Sources:
    """Where settings come from, to read them, and to read them again at SIGHUP.

    Attributes:
        options: Given on the command line, by name.
        environ: The environment.
        cwd: Where relative paths in the environment and on the command line start; those in the
            file start where the file is.
    """

    options: Mapping[str, Value]
    environ: Mapping[str, str]
    cwd: Path

    @property
    def config(self) -> Path | None:
        """The file, if one is named."""
        typed = self.options.get("config") or self.environ.get(BY_NAME["config"].env)
        return self.cwd / limits.expanded(str(typed)) if typed else None

    def settings(self) -> Settings:
        """Read them all.

        Raises:
            UsageError: A value, or a key of the file, that there is not.
            NotFoundError: There is no such file.
        """
        path = self.config
        told = _texts(path, _document(path)) if path is not None else {}
        base = path.parent if path is not None else self.cwd
        values: dict[str, Any] = {}
        for setting in TABLE:
            for where, at, text in (
                (setting.option, self.cwd, self.options.get(setting.name)),
                (setting.env, self.cwd, self._from_environ(setting)),
                (f"{setting.name} in {path}", base, told.get(setting.name)),
            ):
                if text is not None:
                    values[setting.attribute] = _read(setting, where, text, at)
                    break
        return Settings(**values)

    def command(self) -> tuple[str, ...]:
        """The llama-server command that the file holds; empty if there is none."""
        path = self.config
        words = _document(path).get(COMMAND, []) if path is not None else []
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise UsageError(
                f"{COMMAND} in {path} is no list of words",
                hint=f'write it like {COMMAND} = ["llama-server", "-m", "model.gguf"]',
            )
        return tuple(words)

    def _from_environ(self, setting: Setting) -> Value | None:
        text = self.environ.get(setting.env)
        if text is None or not setting.many:
            return text
        return tuple(part for part in (one.strip() for one in text.split(",")) if part)


def _document(path: Path) -> dict[str, Any]:
    try:
        with limits.open_regular(path) as file:
            data = file.read(limits.CONFIG_FILE + 1)
    except FileNotFoundError:
        raise NotFoundError(f"there is no file {path}", hint="name a TOML file") from None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    if len(data) > limits.CONFIG_FILE:
        raise UsageError(f"{path} is longer than {limits.CONFIG_FILE} bytes", hint="shorten it")
    try:
        return tomllib.loads(data.decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        text = str(error).splitlines()[0] if str(error) else "nested too deeply"
        raise UsageError(f"{path} is no TOML: {text}", hint="mend that line") from None


def _texts(path: Path, document: Mapping[str, Any]) -> dict[str, Value]:
    """The values of the file as they would be written on the command line."""
    texts: dict[str, Value] = {}
    for key, value in document.items():
        if key == COMMAND:
            continue
        setting = BY_NAME.get(key)
        if setting is None or key == "config":
            raise UsageError(f"there is no setting {key!r}, in {path}", hint=_near(key))
        items = value if isinstance(value, list) and setting.many else [value]
        if any(isinstance(item, list | dict) or not _is_plain(item) for item in items):
            raise UsageError(
                f"{key} in {path} cannot be a {type(value).__name__}",
                hint=f"write it like {key} = {_toml_example(setting)}",
            )
        one = tuple(_text(item) for item in items)
        texts[key] = one if setting.many else one[0]
    return texts


def _is_plain(value: object) -> bool:
    return isinstance(value, str | int | float | bool)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _near(key: str) -> str:
    near = difflib.get_close_matches(key, BY_NAME, 1, 0.6)
    return f"write {near[0]}" if near else "see `arriero serve --help` for those that there are"


def _toml_example(setting: Setting) -> str:
    return "true" if setting.switch else f'"{setting.example}"'


def _read(setting: Setting, where: str, text: Value, base: Path) -> Any:
    def one(text: str) -> Any:
        try:
            value = setting.parse(text)
        except UsageError as error:
            raise UsageError(f"{where}: {error.message}", hint=error.hint) from None
        if isinstance(value, Listen) and value.socket is not None:
            return replace(value, socket=base / value.socket)
        return base / value if isinstance(value, Path) else value

    if setting.many:
        return tuple(one(item) for item in ((text,) if isinstance(text, str) else text))
    if not isinstance(text, str):
        raise UsageError(f"{where}: given several times", hint="give it once")
    return one(text)
