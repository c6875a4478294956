"""Options that an engine would refuse, told before anything is planned."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Final

from arriero.base.errors import UsageError
from arriero.command import Command, FlagTable
from arriero.launch.attention import CACHE_TYPES

_NUMBERS: Final = ("-c", "-np", "-ub", "-b", "-ncmoe", "-cram", "-ctxcp", "-fitc", "-mg")
_LAYERS: Final = frozenset({"auto", "all"})
_SWITCH_WORDS: Final = frozenset(
    {"on", "off", "true", "false", "enabled", "disabled", "1", "0", "auto", "-1"}
)
_LARGEST: Final = 1 << 31
_HELP: Final = "`llama-server --help` lists what it knows"


def refuse_misuse(command: Command, flags: FlagTable) -> None:
    """Raise for what this engine would refuse, naming the nearest thing that it knows.

    Raises:
        UsageError: An option that it does not know, without a value, or with a wrong one.
    """
    for item in command.unknown:
        if not item.name.startswith("-"):
            raise UsageError(f"not an option of llama-server: {item.name}", hint=_HELP)
        names = [n for flag in flags.flags for n in (*flag.names, *flag.negatives)]
        near = difflib.get_close_matches(item.name, names, 1, 0.7)
        hint = f"did you mean {near[0]}?" if near else _HELP
        raise UsageError(f"llama-server has no option {item.name}", hint=hint, id="flag-unknown")
    problem = next(iter(command.problems()), None)
    if problem is not None:
        raise UsageError(problem, hint=_HELP)
    for name, wanted in _wrong_values(command):
        raise UsageError(
            f"{name} cannot be {command.value(name)!r}", hint=f"give {wanted}", id="flag-value"
        )


def _wrong_values(command: Command) -> Iterator[tuple[str, str]]:
    for name in (*_NUMBERS, "-ngl"):
        if command.flags.get(name) is None or not command.has(name):
            continue
        number = command.number(name)
        layers = name == "-ngl" and command.value(name) in _LAYERS
        if not layers and (number is None or abs(number) >= _LARGEST):
            yield name, "a whole number" + (", auto or all" if name == "-ngl" else "")
    for name in ("-ctk", "-ctv"):
        if command.has(name) and command.value(name) not in CACHE_TYPES:
            yield name, "one of " + ", ".join(CACHE_TYPES)
    for flag in command.flags.flags:
        value = command.value(flag.canonical) if flag.choices else None
        words = {*flag.choices, *(_SWITCH_WORDS if "on" in flag.choices else ())}
        if value is not None and value not in words:
            yield flag.canonical, "one of " + ", ".join(flag.choices)
