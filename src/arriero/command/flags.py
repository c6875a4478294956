"""The flags of one llama-server as data: from its ``--help``, or from the table shipped here."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from arriero.base.late import pattern

_ENTRY: Final = pattern(r" {0,4}(-\S.*)\Z")
_NAME: Final = pattern(r"(--?[A-Za-z][\w.-]*)(, *)?")
_ENV: Final = pattern(r"\(env: (\w+)\)")
_DEFAULT: Final = pattern(r"\bdefault: (?:'([^']*)'|([^,;()]*))")
_LEVEL: Final = pattern(r"- (\d+): ([a-z]+)")
_ENUM: Final = pattern(r"(?:\{([^}]+)\}|\[([\w|-]+)\]|<(\w+(?:\|\w+)+)>)\Z")
_ALLOWED: Final = pattern(r"allowed values: ([\w, -]+?)(?= \(|\Z)")
_LISTED: Final = pattern(r"(?:^| )- ([a-z][\w+-]*)(?: \([^)]*\))?:(?= )")
_LONGEST_HELP: Final = 1 << 20


class Flag(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One flag.

    ``names`` turn it on or set its value, ``negatives`` turn it off (``--no-mmap``, ``-nkvo``).
    ``arity`` is the number of words that follow. ``env`` is the variable with the same effect; a
    flag with negatives also obeys its ``LLAMA_ARG_NO_*`` form (``env_off``). ``default`` is the
    engine's own description of the default. The engine refuses ``removed`` flags.
    """

    names: tuple[str, ...]
    negatives: tuple[str, ...] = ()
    arity: int = 0
    env: str | None = None
    choices: tuple[str, ...] = ()
    default: str | None = None
    words: tuple[str, ...] = ()
    """More values that its help names, in addition to ``choices``."""
    removed: bool = False
    deprecated: bool = False

    @property
    def canonical(self) -> str:
        """The first long name, or the only one."""
        return next((name for name in self.names if name.startswith("--")), self.names[0])

    @property
    def env_off(self) -> str | None:
        """The variable that turns the flag off when set to anything (common/arg.cpp)."""
        if self.env is None or not self.negatives or not self.env.startswith("LLAMA_ARG_"):
            return None
        return self.env.replace("LLAMA_ARG_", "LLAMA_ARG_NO_")


@dataclass(frozen=True)
class FlagTable:
    """All flags of one engine. ``verbosity`` names the levels of ``-lv`` from 0 up, if known."""

    flags: tuple[Flag, ...]
    verbosity: tuple[str, ...] = ()

    @functools.cached_property
    def _by_name(self) -> dict[str, Flag]:
        return {name: flag for flag in self.flags for name in (*flag.names, *flag.negatives)}

    def get(self, name: str) -> Flag | None:
        """The flag that this word means to llama-server; ``_`` equals ``-`` in long names."""
        return self._by_name.get(normalise(name))

    def knows(self, name: str) -> bool:
        """Whether the engine accepts the flag: it is listed and not marked as removed."""
        flag = self.get(name)
        return flag is not None and not flag.removed


def normalise(name: str) -> str:
    """A flag as llama-server looks it up: underscores of long names become dashes."""
    return name.replace("_", "-") if name.startswith("--") else name


def parse_help(text: str) -> FlagTable:
    """Read the output of ``llama-server --help`` of any era that lists one flag per entry.

    Other text gives an empty table.
    """
    flags: list[Flag] = []
    levels: tuple[str, ...] = ()
    for head, body in _entries(text[:_LONGEST_HELP]):
        names, hint, about = _split_head(head)
        if not names:
            continue
        about = " ".join([about, *body])
        flag = _flag(names, hint, about)
        flags.append(flag)
        if "-lv" in names:
            levels = tuple(word for _, word in _LEVEL.findall(about))
    return FlagTable(tuple(flags), levels)


def _entries(text: str) -> list[tuple[str, list[str]]]:
    """Each entry's first line and the lines that continue it."""
    entries: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if match := _ENTRY.match(line):
            entries.append((match.group(1), []))
        elif entries and line[:1] == " ":
            entries[-1][1].append(line.strip())
    return entries


def _split_head(head: str) -> tuple[list[str], str, str]:
    """``-c, --ctx-size N   size of ...`` → names, value placeholder, first words of the text."""
    names: list[str] = []
    rest = head
    while match := _NAME.match(rest):
        names.append(match.group(1))
        rest = rest[match.end() :]
        if match.group(2) is None:
            break
    if rest.startswith("  ") or not rest.strip():
        return names, "", rest.strip()
    # A placeholder may contain single spaces (`START END`); two or more separate it from the text.
    hint, _, about = rest.strip().partition("  ")
    return names, hint.strip(), about.strip()


def _flag(names: list[str], hint: str, about: str) -> Flag:
    arity = len(re.sub(r"<[^>]*>|\[[^\]]*\]|\{[^}]*\}", "x", hint).split())
    positives, negatives = (names, []) if arity else _split_negatives(names)
    env = _ENV.findall(about)
    default = _DEFAULT.search(about)
    enum = _ENUM.match(hint)
    choices = re.split(r"[,|]", next(filter(None, enum.groups()))) if enum else []
    allowed = _ALLOWED.search(about)
    words = allowed[1].replace(" ", "").split(",") if allowed else _LISTED.findall(about)
    if re.fullmatch(r"[a-z][\w-]*(?:,[a-z][\w-]*){2,}", hint):
        words = hint.split(",")
    return Flag(
        names=tuple(positives),
        negatives=tuple(negatives),
        arity=arity,
        env=env[-1] if env else None,
        choices=tuple(choices),
        words=tuple(dict.fromkeys(words)) if arity == 1 else (),
        default=(default.group(1) or default.group(2)).strip() if default else None,
        removed="argument has been removed" in about,
        deprecated="DEPRECATED" in about,
    )


def _split_negatives(names: list[str]) -> tuple[list[str], list[str]]:
    """Positive names come first; the negatives start at the first ``-n…`` after a long name."""
    if not any(f"--no-{name[2:]}" in names for name in names):
        return names, []
    first_long = next(i for i, name in enumerate(names) if name.startswith("--"))
    start = next(
        i for i, name in enumerate(names) if i > first_long and name.startswith(("-n", "--no-"))
    )
    return names[:start], names[start:]


def encode_flags(table: FlagTable) -> bytes:
    """The table as JSON, one flag a line."""
    lines = b",\n".join(msgspec.json.encode(flag) for flag in table.flags)
    return b'{"verbosity":%b,"flags":[\n%b\n]}\n' % (msgspec.json.encode(table.verbosity), lines)


def decode_flags(data: bytes) -> FlagTable:
    """The table back from its JSON.

    Raises:
        msgspec.DecodeError: The data is not such a table.
    """
    return msgspec.json.decode(data, type=FlagTable)


BUILTIN: Final = (10092, 10434)
"""Builds whose flags are shipped."""
KNOWN: Final = (10068, *BUILTIN)
"""Builds whose flags are known; 10068 has the same flags as 10092."""


@functools.cache
def builtin_flags(build: int | None = None) -> FlagTable:
    """The flags of a build when there is no engine to ask: of the newest shipped build up to it.

    A build older than all shipped ones gets the oldest table; None gets the newest.
    """
    known = [number for number in BUILTIN if build is None or number <= build] or BUILTIN[:1]
    name = "flags.json" if known[-1] == BUILTIN[-1] else f"flags-{known[-1]}.json"
    return decode_flags(Path(__file__).with_name(name).read_bytes())
