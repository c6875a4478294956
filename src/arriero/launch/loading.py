"""How weights get into memory: mapped from the file or read, and whether they are locked there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from arriero.command import Command

_FLAGS: Final = ("-lm", "-dio", "--mmap", "--mlock")
"""The flags that decide it. Of their variables llama.cpp takes the first one here that is set."""
_MODES: Final = {
    ("-dio", "on"): "dio",
    ("-dio", "off"): "none",
    ("--mmap", "on"): "mmap",
    ("--mmap", "off"): "none",
    ("--mlock", "on"): "mlock",
}


@dataclass(frozen=True, kw_only=True)
class Loading:
    mapped: bool
    """Whether the weights are pages of the file, which the kernel can drop and read again."""
    locked: bool
    """Whether they are to stay in RAM (``ulimit -l`` permitting)."""


def loading_of(command: Command) -> Loading:
    """How a command has its weights loaded.

    An engine with ``--load-mode`` goes by the last of all these flags: with ``--mlock`` alone it
    reads the weights (build 10434 logs ``load_mode = mlock`` and no mapped buffer). One without it
    takes each flag for itself.
    """
    if command.flags.knows("-lm"):
        mode = _mode(command)
        return Loading(mapped=mode in ("auto", "mmap", "mmap+mlock"), locked="mlock" in mode)
    reads = command.switch("-dio") is True or command.switch("--mmap") is False
    return Loading(mapped=not reads, locked=command.switch("--mlock") is True)


def _mode(command: Command) -> str:
    flags = {command.flags.get(name): name for name in _FLAGS if command.flags.knows(name)}
    typed = [(flags[item.flag], item.value) for item in command.items if item.flag in flags]
    by_variable = [(name, value) for name in flags.values() if (value := command.value(name))]
    name, value = (typed[-1:] or by_variable[:1] or [("-lm", "auto")])[0]
    return value if name == "-lm" else _MODES.get((name, value), "auto")
