"""What is known to break about commands, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from arriero.record import Check, Checks, Finding
from arriero.report.terminal.lines import Line, bullet, wrapped
from arriero.report.view.text import command, printable, spelled_lines, wrap
from arriero.report.view.words import count

_STYLES: Final = {"error": "bad", "warning": "open", "info": "dim"}


def lines(doc: Check | Checks, width: int) -> list[Line]:
    """Findings of each command, the worst first, and the command that mends them."""
    checks = doc.checks if isinstance(doc, Checks) else (doc,)
    shown: list[Line] = []
    for one in checks:
        shown += [Line("")] if shown else []
        shown += _check(one, width)
    return shown


def _check(doc: Check, width: int) -> Iterator[Line]:
    rules = f"build {doc.build}" if doc.build else "the newest build known"
    where = f"{doc.where} · " if doc.where else ""
    number = count(len(doc.findings), "finding") if doc.findings else "nothing found"
    yield from wrapped(printable(f"{where}{number}, by the rules of {rules}"), width)
    for finding in doc.findings:
        yield Line("")
        yield Line(f"{finding.severity.upper()}  {finding.id}", _STYLES[finding.severity])
        yield from _finding(finding, width)
    for note in doc.notes:
        yield Line("")
        yield from wrapped(printable(note), width)
    for finding in doc.later:
        yield Line("")
        yield Line(f"THEN  {finding.id}", "head")
        yield from _finding(finding, width)
    if doc.fixed_argv is not None:
        yield Line("")
        yield Line("FIXED", "good")
        for text in _fixed(doc, doc.fixed_argv, width):
            yield Line(text, exact=True)
        for note in doc.spelled_otherwise:
            yield from bullet(printable(note), width)
    if doc.unchecked:
        yield Line("")
        yield Line(f"NOT CHECKED  {count(len(doc.unchecked), 'gotcha')}", "head")
        for missing in dict.fromkeys(one.missing for one in doc.unchecked):
            ids = ", ".join(one.id for one in doc.unchecked if one.missing == missing)
            yield from bullet(printable(missing), width)
            yield from map(Line, wrap(ids, width, first="    "))


def _fixed(doc: Check, argv: Sequence[str], width: int) -> list[str]:
    """As it is spelled where it comes from, if nothing in that acts on a terminal."""
    if doc.spelled and all(word == printable(word) for word in doc.spelled):
        return spelled_lines(doc.spelled, width=width, indent="  ")
    return command(argv, width=width, indent="  ")


def _finding(finding: Finding, width: int) -> Iterator[Line]:
    at = f"  [{finding.where}]" if finding.where else ""
    parts = [finding.title, f"because: {finding.because}{at}"]
    if finding.applies == "maybe":
        parts.append(f"maybe; unknown: {'; '.join(finding.missing)}")
    if finding.edit:
        parts.append(f"change: {', '.join(map(str, finding.edit))}")
    elif finding.workaround:
        parts.append(f"what to do: {' '.join(finding.workaround.split())}")
    shown = ", ".join(map(str, finding.builds))
    parts.append(finding.status + (f" on {shown}" if shown else ""))
    for part in parts:
        yield from map(Line, wrap(printable(part), width, first="  "))
