"""Match every rule against one command: findings, unchecked gotchas, the repaired command."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import msgspec

from arriero.base.errors import ArrieroError, UsageError
from arriero.command import Command
from arriero.gotchas.facts import Facts
from arriero.gotchas.missing import MissingError
from arriero.gotchas.model import Applies, Found, Severity
from arriero.gotchas.registry import Entry, Registry
from arriero.gotchas.verdicts import Standing
from arriero.record import Edit, Finding, GotchaVerdict, Unchecked

ROUNDS: Final = 12
"""How often a repaired command is checked again; edits that need more undo each other."""
_WORDS: Final = "flags"
"""The bundle about a command's words. It comes first: a wrong word would mislead other rules."""
_ANY_ENGINE: Final = frozenset(["files", "serving"])
"""Bundles whose rules hold for every engine, build and device."""
_RANK: Final = {"error": 0, "warning": 1, "info": 2}


class Matched(msgspec.Struct, frozen=True):
    """The result of all rules for one command."""

    findings: tuple[Finding, ...]
    unchecked: tuple[Unchecked, ...]


Locate = Callable[[str | int | None], str | None]
"""``file:line`` of a flag, of a line, or of the command."""
Said = Callable[[str], Sequence[GotchaVerdict]]
"""The verdicts on a gotcha by its id; called only for gotchas that were found."""


def _nowhere(_: str | int | None) -> str | None:
    return None


def _nothing(_: str) -> Sequence[GotchaVerdict]:
    return ()


def match(
    facts: Facts,
    rules: Registry,
    said: Said = _nothing,
    *,
    locate: Locate = _nowhere,
) -> Matched:
    """All findings, the most severe first.

    Args:
        locate: ``file:line`` of a flag of the command, or of the command itself.
    """
    findings: list[Finding] = []
    unchecked: list[Unchecked] = []
    for entry in rules.entries:
        try:
            for found in entry.detect(facts):
                standing = Standing(tuple(said(entry.id)))
                found = _doubted(entry, found, facts)
                at = locate(found.line or found.flag)
                findings.append(_finding(entry, found, facts, standing, at))
        except MissingError as error:
            unchecked.append(Unchecked(id=entry.id, title=entry.title, missing=error.what))
        except ArrieroError as error:  # another rule reports what is wrong with the command
            unchecked.append(Unchecked(id=entry.id, title=entry.title, missing=error.message))
    findings.sort(key=lambda f: (_RANK[f.severity], f.applies != "yes"))
    return Matched(tuple(findings), tuple(unchecked))


def _doubted(entry: Entry, found: Found, facts: Facts) -> Found:
    """The finding, made a maybe without an edit if another engine may run the command."""
    missing: list[str] = []
    if facts.around.doubt:
        missing.append(facts.around.doubt)
    elsewhere = facts.elsewhere if entry.bundle not in _ANY_ENGINE else None
    if elsewhere is not None:
        missing.append(f"the engine that will run it: {elsewhere}")
    if not missing:
        return found
    return replace(
        found,
        applies=Applies.MAYBE,
        missing=tuple(dict.fromkeys((*(found.missing if not elsewhere else ()), *missing))),
        edit=() if elsewhere else found.edit,
    )


def _finding(
    entry: Entry, found: Found, facts: Facts, standing: Standing, at: str | None
) -> Finding:
    severity = found.severity or entry.head.severity
    status = standing.status_on(facts.build)
    doubtful = found.applies is Applies.MAYBE or status == "refuted"
    if doubtful and severity is Severity.ERROR:
        severity = Severity.WARNING
    return Finding(
        id=entry.id,
        title=entry.title,
        severity=severity.value,
        status=status,
        applies=found.applies.value,
        because=found.because,
        workaround=entry.sections["Workaround"],
        missing=found.missing,
        edit=found.edit or None,
        fixed_argv=_fixed_argv(facts, found.edit),
        where=at,
        builds=standing.builds,
        confidence=standing.confidence,
    )


def _fixed_argv(facts: Facts, edit: tuple[Edit, ...]) -> tuple[str, ...] | None:
    changed = _edited(facts, edit) if edit else None
    return changed.command.safe_argv() if changed else None


def _edited(facts: Facts, edit: tuple[Edit, ...]) -> Facts | None:
    """The facts about the changed command; None if the engine has no such flag."""
    try:
        return facts.with_edits(edit)
    except UsageError:
        return None


def repaired(facts: Facts, rules: Registry, said: Said = _nothing) -> Command:
    """The command with the edits of :func:`repair`."""
    return repair(facts, rules, said)[0]


def repair(
    facts: Facts, rules: Registry, said: Said = _nothing
) -> tuple[Command, tuple[Finding, ...]]:
    """Apply the edit of one finding after another until nothing changes.

    Findings about words come before all others, and errors before warnings. After each edit, all
    rules are matched again.

    Returns:
        The command, and the finding behind each edit, in their order.
    """
    applied: list[Finding] = []
    for _ in range(ROUNDS):
        findings = match(facts, rules, said).findings
        for finding in sorted(findings, key=lambda f: rules.get(f.id).bundle != _WORDS):
            changed = _edited(facts, finding.edit or ())
            if finding.edit and changed and changed.command.words != facts.command.words:
                facts = changed
                applied.append(finding)
                break
        else:
            break
    return facts.command, tuple(applied)
