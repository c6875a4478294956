"""Where weights and caches go: devices, workers, layers, shares, and what is kept on the host."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Literal, get_args

from arriero.command import Command

SplitMode = Literal["none", "layer", "row", "tensor"]
_MAX_LAYERS: Final = 512
_EXPERTS: Final = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"
"""Tensors of experts, as ``--cpu-moe`` names them (common/common.h)."""


def layers(command: Command, flag: str = "-ngl") -> int:
    """``-ngl``; ``auto`` and ``all`` are every layer."""
    said = command.number(flag)
    return -1 if said is None or said < 0 else said


def layers_given(command: Command) -> int | None:
    """``-ngl`` as llama.cpp numbers it; None where it is left to the engine, -2 is ``all``."""
    said = -2 if command.value("-ngl") == "all" else command.number("-ngl")
    return None if said == -1 else said


def layers_open(command: Command) -> bool:
    """Whether ``-ngl`` is left to the engine; a word that only a shell fills in is not."""
    return command.value("-ngl") in (None, "auto") or command.number("-ngl") == -1


def split_mode(command: Command) -> SplitMode:
    said = command.value("-sm")
    return next((mode for mode in get_args(SplitMode) if mode == said), "layer")


def tensor_split(command: Command) -> tuple[float, ...]:
    parts = re.findall(r"[-+]?(?:\d+\.?\d*|\.\d+)", command.value("-ts") or "")
    return tuple(float(part) for part in parts)


def devices(command: Command, flag: str = "-dev") -> tuple[str, ...] | None:
    """The devices that the command names; None where it leaves them to the engine."""
    said = command.value(flag)
    if not said:
        return None
    if said == "none":
        return ()
    return tuple(name.strip() for name in said.split(",") if name.strip())


def workers(command: Command) -> tuple[str, ...]:
    """The endpoints of ``--rpc``, each once. The flag adds up when it is repeated."""
    values = command.values("--rpc") or (command.value("--rpc") or "",)
    named = (part.strip() for value in values for part in value.split(","))
    return tuple(dict.fromkeys(name for name in named if name))


def expert_layers(command: Command) -> int | None:
    """First layers whose experts stay on the host; None where ``-cmoe`` or ``-ot`` decide."""
    if command.switch("-cmoe") is True or command.has("-ot"):
        return None
    return max(0, command.number("-ncmoe") or 0)


def overrides(command: Command, *names: str) -> tuple[tuple[str, str], ...]:
    """Pattern and buffer type of ``-ot``, ``-cmoe`` and ``-ncmoe``, or of the flags named.

    Variables come before flags, as llama.cpp applies them, and flags in their order.
    """
    return tuple(_overrides(command, names or ("-ot", "-cmoe", "-ncmoe")))


def _overrides(command: Command, names: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    flags = {name: command.flags.get(name) for name in names}
    for name, flag in flags.items():
        if flag is not None and command.count(name) == 0 and (value := command.value(name)):
            yield from _override(name, value)
    for item in command.items:
        for name, flag in flags.items():
            if flag is not None and item.flag is flag:
                yield from _override(name, item.value)


def _override(name: str, value: str) -> Iterator[tuple[str, str]]:
    if name in ("-cmoe", "-cmoed"):
        if value == "on":
            yield _EXPERTS, "CPU"
    elif name in ("-ncmoe", "-ncmoed"):
        match = re.match(r"\d+", value)
        count = min(int(match[0]) if match else 0, _MAX_LAYERS)
        if count:
            layers = "|".join(map(str, range(count)))
            yield rf"blk\.(?:{layers}){_EXPERTS}", "CPU"
    else:
        for part in value.split(","):
            pattern, equals, buffer = part.partition("=")
            if equals:
                yield pattern, buffer.strip()
