"""What one log says, or several logs."""

from __future__ import annotations

from typing import Literal

import msgspec

from arriero.base.words import Cost, LogOutcome
from arriero.logs.model import Buffer, Effective, EngineTag, Failure, Notice


class Remedy(msgspec.Struct, frozen=True, kw_only=True):
    """A change that helps against a failure, by the failure alone: its command is not known."""

    change: str
    """A flag with its value where one is known, or what to do in a few words."""
    cost: Cost
    why: str


class KnownFailure(msgspec.Struct, frozen=True, kw_only=True):
    """A gotcha that a log shows the signs of."""

    id: str
    title: str
    applies: Literal["yes", "maybe"]
    line: int
    """The line that shows it, from 1."""
    workaround: str


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """What one log says."""

    schema: Literal["arriero.explanation/1"] = "arriero.explanation/1"
    source: str
    era: str
    child: str | None
    engine: EngineTag
    outcome: LogOutcome
    failure: Failure | None
    secondary: tuple[Failure, ...]
    buffers: tuple[Buffer, ...]
    notices: tuple[Notice, ...]
    effective: Effective = Effective()
    known: tuple[KnownFailure, ...] = ()
    advice: tuple[Remedy, ...] = ()
    """Cheapest first."""
    children: tuple[Explanation, ...] = ()
    complete: bool = True
    """False when reading was interrupted: it says what had been read by then."""


class Explanations(msgspec.Struct, frozen=True, kw_only=True):
    """Several logs given to one command."""

    schema: Literal["arriero.explanations/1"] = "arriero.explanations/1"
    explanations: tuple[Explanation, ...]
