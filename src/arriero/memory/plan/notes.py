"""What a plan says beside its lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

from arriero.record import PlanNote

NoteId = Literal["refused", "unknown", "drift", "between_builds", "dry_run", "placement", "fit"]


class Notes:
    """The notes of one plan in the order in which they came, each once."""

    def __init__(self) -> None:
        self._notes: dict[PlanNote, None] = {}

    def add(self, kind: NoteId, text: str) -> None:
        self.extend([PlanNote(id=kind, text=text)])

    def extend(self, notes: Iterable[PlanNote]) -> None:
        self._notes |= dict.fromkeys(notes)

    def __iter__(self) -> Iterator[PlanNote]:
        return iter(self._notes)
