"""What a caller may give as a path."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeAlias

StrPath: TypeAlias = str | os.PathLike[str]


def texts(words: Sequence[StrPath]) -> list[str]:
    """The words of a command, some of which may be paths."""
    return [os.fspath(word) for word in words]
