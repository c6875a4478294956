"""A verdict as every output shows it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Tone(Enum):
    """Whether a verdict is good, bad or neither; never the only carrier of that fact."""

    GOOD = "good"
    BAD = "bad"
    OPEN = "open"


@dataclass(frozen=True, kw_only=True)
class VerdictView:
    """A verdict: one word, one sentence, the sizes behind it, and what else supports it."""

    word: str
    tone: Tone
    sentence: str
    sizes: str = ""
    details: tuple[str, ...] = ()
    quote: str = ""
    """The engine's own line, where it says more than the sentence."""
