"""Records of earlier runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

import msgspec

NOT_KEPT: Final = "no record was kept"
"""How the note begins that says so: then there is nothing to report from."""


class HistoryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the history."""

    id: str
    schema: str
    created_at: str
    summary: str
    complete: bool


class History(msgspec.Struct, frozen=True, kw_only=True):
    """Records of earlier runs, newest first."""

    schema: Literal["arriero.history/1"] = "arriero.history/1"
    entries: tuple[HistoryEntry, ...]


def was_kept(notes: Iterable[str]) -> bool:
    """Whether the history has a record with these notes, so that a report can be made of it."""
    return not any(note.startswith(NOT_KEPT) for note in notes)
