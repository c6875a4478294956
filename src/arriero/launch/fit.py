"""The engine's own fit and what it must leave (``-fit``, ``-fitt``, ``-fitc``)."""

from __future__ import annotations

import re
from typing import Final

from arriero.base.sizes import MIB
from arriero.command import Command

DEFAULT_FIT_TARGET: Final = 1024 * MIB
"""``--fit-target``: what the engine's own fit leaves free on each device."""
DEFAULT_FIT_CONTEXT: Final = 4096
_OFF: Final = ("off", "0", "false", "disabled")


def fits(command: Command) -> bool:
    """Whether the engine may shrink what the command leaves open until it fits."""
    return command.value("--fit") not in _OFF


def fit_targets(command: Command) -> tuple[int, ...]:
    """Bytes that fit keeps free on each device; one figure is for all of them."""
    parts = re.split(r"[,/]+", command.value("-fitt") or "")
    sizes = [re.match(r"\d+", part) for part in parts]
    return tuple(int(size[0]) * MIB for size in sizes if size) or (DEFAULT_FIT_TARGET,)


def fit_context(command: Command) -> int:
    """The least context that fit takes, per slot where slots are separate."""
    return command.number("-fitc") or DEFAULT_FIT_CONTEXT
