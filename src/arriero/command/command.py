"""A llama-server command line as a frozen value: look up, change one thing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from arriero.base.errors import UsageError
from arriero.command.flags import Flag, FlagTable, normalise
from arriero.command.line import CommandLine, Item, is_secret
from arriero.command.prefix import read_prefix
from arriero.command.secret import MASK, mask_word
from arriero.command.shell import check_stray, split_text

_TRUTHY: Final = frozenset({"on", "enabled", "true", "1"})
_FALSEY: Final = frozenset({"off", "disabled", "false", "0"})
_STAND_IN: Final = re.compile(r"--(?:embd|fim|gpt-oss|vision)-.*-(?:default|spec)\Z")


class ModelSource(StrEnum):
    """Where the command says the model comes from."""

    FILE = "file"
    URL = "url"
    HF = "hf"
    """Hugging Face: ``-hf``, or one of the flags that stand for a repository."""
    DOCKER = "docker"
    ROUTER = "router"
    """No model is given: newer builds then start as a router for several models."""


@dataclass(frozen=True, repr=False)
class Command(CommandLine):
    """A command line, parsed with the flags of one engine.

    Values are those that llama-server would use: any alias counts, the last occurrence of a flag
    wins, and a flag wins over its ``LLAMA_ARG_*`` variable (common/arg.cpp applies the variables
    first).
    """

    def value(self, name: str) -> str | None:
        """The value in force for a flag; None if neither a flag nor a variable sets it.

        The value of a switch is ``on`` or ``off`` (its negative name gives the same value as the
        positive one). Several words are joined by a space.
        """
        flag = self.flags.get(name)
        items = self._items_of(name)
        if items:
            return items[-1].value
        return self._from_environ(flag) if flag else None

    def number(self, name: str) -> int | None:
        """The value in force as a whole number; None if there is no value or it is a word.

        llama-server reads the digits at the beginning (``4x`` is 4) and refuses anything else.
        """
        digits = re.match(r"\s*([+-]?\d+)", self.value(name) or "", re.ASCII)
        return int(digits[1]) if digits else None

    def switch(self, name: str) -> bool | None:
        """Whether a switch is on; None if the command leaves it to the engine.

        Older builds have ``--no-x`` as a separate flag: then ``--x`` is off.
        """
        value = self.value(name)
        if value is None and name.startswith("--") and self.has(f"--no-{name[2:]}"):
            return False
        return None if value is None else value not in _FALSEY

    def values(self, name: str) -> tuple[str, ...]:
        """The value of each occurrence on the command line, in order (``-ot``, ``--lora``)."""
        return tuple(item.value for item in self._items_of(name))

    def has(self, name: str) -> bool:
        """Whether the flag, or its variable, is set at all."""
        return self.value(name) is not None

    def count(self, name: str) -> int:
        """How often the flag is on the command line, by any alias."""
        return len(self._items_of(name))

    def effective(self) -> dict[str, str]:
        """Canonical flag → value in force, in the order of the engine's help; secrets masked."""
        found: dict[str, str] = {}
        for flag in self.flags.flags:
            value = self.value(flag.names[0])
            if value is not None:
                masked = MASK if is_secret(flag) else mask_word(value, self.secrets())
                found[flag.canonical] = masked
        return found

    @property
    def unknown(self) -> tuple[Item, ...]:
        """The words that this engine does not know; it refuses the first one."""
        return tuple(item for item in self.items if item.flag is None)

    def problems(self) -> tuple[str, ...]:
        """What this engine will refuse in the command line, one line each."""
        return tuple(self._problems())

    def _problems(self) -> Iterator[str]:
        for item in self.items:
            if item.flag is None:
                yield f"this engine does not know {item.name}"
            elif item.flag.removed:
                yield f"this engine has removed {item.name}"
            elif not item.complete:
                yield f"{item.name} needs a value"
            elif item.flag.choices and self.flags.get(item.value) is not None:
                choices = ", ".join(item.flag.choices)
                yield f"{item.name} has the value {item.value}; it needs one of {choices}"

    def with_value(self, name: str, value: str, *, last: bool = False) -> Command:
        """The same command with one setting changed and nothing else.

        The value is replaced at the last occurrence, which is in force; earlier ones stay. A new
        flag is appended under the given name. The value of a switch is ``on`` or ``off``; ``off``
        removes a switch that has no negative form. The values of a flag with several words are
        separated by spaces.

        Args:
            last: Append the flag even if it is already there, so that it also wins over another
                flag with the same effect (``-lm`` over ``--mmap``, ``-lv`` over ``-v``).

        Raises:
            UsageError: This engine has no such flag, or the flag cannot have this value.
        """
        flag = self.flags.get(name)
        if flag is None or flag.removed:
            return self._with_missing_flag(name, value)
        if flag.arity == 0:
            if value not in _TRUTHY | _FALSEY:
                raise UsageError(f"{name} is a switch: its value is on or off, not {value!r}")
            return self._with_switch(flag, name, value in _TRUTHY, last)
        values = value.split() if flag.arity > 1 else [value]
        if len(values) != flag.arity:
            raise UsageError(f"{name} needs {flag.arity} values, but got {value!r}")
        items = self._items_of(name)
        if items and not last:
            return self.spliced(items[-1].at + 1, items[-1].end, values)
        return self._appended([name, *values])

    def without(self, name: str) -> Command:
        """The same command without the flag, by any alias, and without words that set its variable.

        A variable inherited from outside stays in force.
        """
        flag = self.flags.get(name)
        drop = {at for item in self._items_of(name) for at in range(item.at, item.end)}
        variables = (flag.env, flag.env_off) if flag else ()
        drop |= {at for at in self.prefix.assigned if self.words[at].partition("=")[0] in variables}
        return self._picked([at for at in range(len(self.words)) if at not in drop])

    def with_environ(self, name: str, value: str) -> Command:
        """The same command with one variable set: in place, or as a new word at the beginning.

        ``env -i`` or ``env -u`` would drop such a word, so with them it goes before the program.
        """
        word = f"{name}={value}"
        places = [at for at in self.prefix.assigned if self.words[at].partition("=")[0] == name]
        if places:
            return self.spliced(places[-1], places[-1] + 1, [word])
        changed = self.spliced(0, 0, [word])
        if changed.environ.get(name) == value:
            return changed
        return self.spliced(self.prefix.length, self.prefix.length, ["env", word])

    def spliced(self, start: int, end: int, words: Sequence[str]) -> Command:
        """The same command with other words at the positions from ``start`` to before ``end``."""
        changed = (*self.words[:start], *words, *self.words[end:])
        origins = (*self.origins[:start], *[None] * len(words), *self.origins[end:])
        return _parse(changed, self.flags, self.inherited, origins)

    def with_program(self, program: str) -> Command:
        """The same command for another engine binary."""
        return self.spliced(self.prefix.length, self.prefix.length + 1, [program])

    def with_flags(self, flags: FlagTable) -> Command:
        """The same words, read with the flags of another engine."""
        return _parse(self.words, flags, self.inherited, self.origins)

    def model_source(self) -> tuple[ModelSource, str | None]:
        """Where the model comes from, and its file, address or repository as typed.

        A repository or address wins over ``-m``, which then only says where to store the file.
        """
        stand_in = [item.name for item in self.items if _STAND_IN.match(item.name)]
        if stand_in:
            return ModelSource.HF, stand_in[-1]
        for name, source in (
            ("-hf", ModelSource.HF),
            ("-dr", ModelSource.DOCKER),
            ("-mu", ModelSource.URL),
            ("-m", ModelSource.FILE),
        ):
            if value := self.value(name):
                return source, value
        return ModelSource.ROUTER, self.value("--models-dir") or self.value("--models-preset")

    def model_path(self) -> str | None:
        """The model file as typed, or its first part; None if it is not a local file."""
        source, where = self.model_source()
        return where if source is ModelSource.FILE else None

    def _items_of(self, name: str) -> list[Item]:
        flag, spelling = self.flags.get(name), normalise(name)
        if flag is None:
            return [item for item in self.items if normalise(item.name) == spelling]
        return [item for item in self.items if item.flag is flag]

    def _from_environ(self, flag: Flag) -> str | None:
        if flag.env_off is not None and flag.env_off in self.environ:
            return "off"
        value = self.environ.get(flag.env) if flag.env else None
        if value is None or flag.arity > 0:
            return value
        if value in _TRUTHY:
            return "on"
        # A switch that can only be turned on ignores every other word.
        if not flag.negatives:
            return None
        return "off" if value in _FALSEY else value

    def _with_missing_flag(self, name: str, value: str) -> Command:
        """``--x`` on or off where an older build only has ``--no-x``."""
        opposite = self.flags.get(f"--no-{name[2:]}") if name.startswith("--") else None
        if opposite is not None and opposite.arity == 0 and value in _TRUTHY | _FALSEY:
            return self._with_switch(opposite, opposite.canonical, value in _FALSEY, False)
        raise UsageError(
            f"this engine does not know {name}",
            hint="run `llama-server --help` to see its flags",
            id="flag-unknown",
        )

    def _with_switch(self, flag: Flag, name: str, on: bool, last: bool) -> Command:
        items = self._items_of(name)
        if items and not last and (items[-1].value == "on") is on:
            return self
        if not on and not flag.negatives:
            return self.without(name)
        spelling = name if (normalise(name) in flag.negatives) is not on else _opposite(flag, name)
        if items and not last:
            return self.spliced(items[-1].at, items[-1].end, [spelling])
        return self._appended([spelling])

    def _appended(self, words: list[str]) -> Command:
        """Add words at the end, but before a word that might take them as its value."""
        at = len(self.words)
        for item in reversed(self.items):
            if item.complete:
                break
            at = item.at
        return self.spliced(at, at, words)

    def _picked(self, places: Sequence[int]) -> Command:
        words = tuple(self.words[at] for at in places)
        origins = tuple(self.origins[at] for at in places)
        return _parse(words, self.flags, self.inherited, origins)


def _opposite(flag: Flag, name: str) -> str:
    """The name with the opposite meaning that looks most like this one."""
    others = flag.names if normalise(name) in flag.negatives else flag.negatives
    long = name.startswith("--")
    return next((other for other in others if other.startswith("--") is long), others[0])


def parse_command(words: Sequence[str], flags: FlagTable, environ: Mapping[str, str]) -> Command:
    """Read a command line as the engine with these flags would.

    A single word with spaces is read as a whole command in quotes and split as a shell would. Flags
    that the engine does not list stay unchanged; the next word is their value unless it looks like
    a flag.

    Raises:
        UsageError: The command cannot be started as it is: it contains syntax that only a shell
            understands, or an unsupported program stands before llama-server.
    """
    if len(words) == 1 and re.search(r"\s", words[0].strip()):
        return _parse(split_text(words[0]), flags, environ)
    return _parse(tuple(words), flags, environ)


def _parse(
    words: tuple[str, ...],
    flags: FlagTable,
    environ: Mapping[str, str],
    origins: tuple[int | None, ...] | None = None,
) -> Command:
    prefix = read_prefix(words, environ)
    items = tuple(_items(words, prefix.length + 1, flags))
    if origins is None:
        origins = tuple(range(len(words)))
    return Command(words, flags, environ, prefix, items, origins)


def _items(words: tuple[str, ...], at: int, flags: FlagTable) -> Iterator[Item]:
    while at < len(words):
        word = words[at]
        flag = flags.get(word)
        if flag is not None:
            values = words[at + 1 : at + 1 + flag.arity]
        else:
            check_stray(word)
            following = words[at + 1 : at + 2]
            takes = word.startswith("-") and following and not _looks_like_flag(following[0])
            values = following if takes else ()
            for value in values:
                check_stray(value)
        yield Item(at, word, values, flag)
        at += 1 + len(values)


def _looks_like_flag(word: str) -> bool:
    return word.startswith("-") and not re.match(r"-\d", word)
