"""Slots, and whether they share one KV cache (``-np``, ``-kvu``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from arriero.command import Command

AUTO_SLOTS: Final = 4
"""``-np`` where the command leaves it to the server: so many, unified."""


@dataclass(frozen=True, kw_only=True)
class Slots:
    """How many requests are served at once, and how their caches lie."""

    count: int
    unified: bool
    """Whether all slots share one KV cache; otherwise each has an equal share of the context."""
    given: bool
    """Whether the command says how many; otherwise the server chose."""


def slots_of(command: Command) -> Slots:
    """The slots of a command.

    Where the server chooses how many, they share one cache, whatever ``-no-kvu`` says (builds 10068
    and 10434 log ``n_slots = 4, kv_unified = 'true'`` for it, and for every ``-np`` below zero).
    """
    count = command.number("-np")
    if count is None or count < 0:
        return Slots(count=AUTO_SLOTS, unified=True, given=False)
    return Slots(count=max(1, count), unified=command.switch("-kvu") is True, given=True)
