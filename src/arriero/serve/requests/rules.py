"""What a server's settings say of requests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from arriero.serve.apis.interface import Continue, Defaults


@dataclass
class Rules:
    """Can change while the server runs."""

    hold: float = 600.0
    comment: float = 5.0
    continue_: Continue = Continue.GREEDY
    prefix: str = ""
    defaults: Callable[[], Defaults] = Defaults
    heard: Callable[[bytes], None] | None = None
    """Hears each piece of an answer, while a restored context waits to be proved."""
    became: Callable[[str, str], None] | None = None
    """Hears what became of a request that the engine had at an incident: its ID, and ``replayed``,
    ``continued`` or ``error_events``."""
    draining: bool = False
