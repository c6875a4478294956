"""The builds of llama.cpp between which its rules for memory changed."""

from __future__ import annotations

from typing import Final

SEEN: Final = (10068, 10092, 10434, 10435, 11434)
"""The builds that the rules were taken from. Between two of them a rule may change anywhere."""
AFTER_10068: Final = 10069
AFTER_10092: Final = 10093
AFTER_10435: Final = 10436
"""A rule is taken to hold from the first build after the last that was seen without it."""
