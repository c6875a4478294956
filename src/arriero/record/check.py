"""What is known to break about a command, before it is started."""

from __future__ import annotations

from typing import Literal

import msgspec

from arriero.record.baseline import EngineRecord


class Edit(msgspec.Struct, frozen=True, kw_only=True):
    """One change to a command.

    ``value`` is what the flag gets (``on`` or ``off`` for a switch), null to take the flag away.
    With ``rename`` the flag keeps its values and gets that name. With ``env`` it is a variable.
    With ``insert`` the value goes between the flag and the word that follows it now.
    """

    flag: str
    value: str | None = None
    rename: str | None = None
    env: bool = False
    insert: bool = False

    def __str__(self) -> str:
        if self.rename is not None:
            return f"{self.flag} → {self.rename}"
        if self.value is None:
            return f"without {self.flag}"
        return f"{self.flag}{'=' if self.env else ' '}{self.value}"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What will go wrong with a command, or go differently than it says."""

    id: str
    title: str
    severity: Literal["error", "warning", "info"]
    status: Literal["draft", "reproduced", "refuted"]
    """Of the gotcha, by verdicts: on this build where there is one, else on any."""
    applies: Literal["yes", "maybe"]
    because: str
    """The evidence: flag, key of the header, figure of a device."""
    workaround: str = ""
    """What to do, in the gotcha's own words."""
    missing: tuple[str, ...] = ()
    """What is not known and would decide it."""
    edit: tuple[Edit, ...] | None = None
    fixed_argv: tuple[str, ...] | None = None
    """The command with this finding's edit alone."""
    where: str | None = None
    """``file:line``."""
    builds: tuple[int, ...] = ()
    """Builds that it was reproduced on."""
    confidence: Literal["high", "medium", "low"] = "low"


class Unchecked(msgspec.Struct, frozen=True, kw_only=True):
    """A gotcha that could not be told to strike or not."""

    id: str
    title: str
    missing: str


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """What is known to break about one command, before it is started."""

    schema: Literal["arriero.check/1"] = "arriero.check/1"
    argv: tuple[str, ...]
    findings: tuple[Finding, ...]
    fixed_argv: tuple[str, ...] | None = None
    """With every edit applied, checked again until nothing changed; null where there is none."""
    spelled: tuple[str, ...] = ()
    """``fixed_argv``, or ``argv``, as a line of the file it comes from: every word that no edit
    touches is as it is written there, quotes and variables included. Without a file, for a shell.
    """
    spelled_otherwise: tuple[str, ...] = ()
    """Where ``spelled`` is not what the file has though no edit is the reason, one line each."""
    later: tuple[Finding, ...] = ()
    """What ``fixed_argv`` mends too and only the command with earlier edits meets."""
    where: str | None = None
    """``file:line`` of the command."""
    build: int | None = None
    """The build whose rules were taken; null for the newest known."""
    engine: EngineRecord | None = None
    unchecked: tuple[Unchecked, ...] = ()
    notes: tuple[str, ...] = ()


class Checks(msgspec.Struct, frozen=True, kw_only=True):
    """A file with several commands."""

    schema: Literal["arriero.checks/1"] = "arriero.checks/1"
    checks: tuple[Check, ...]
