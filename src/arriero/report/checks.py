"""Checks and gotchas for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from arriero.record import Check, Checks, Finding, GotchaEntry, Gotchas, GotchaVerdict, Verdicts
from arriero.report._lines import NARROW, Line, bullet, finish, grid, titled, wrapped
from arriero.report._text import command as command_lines
from arriero.report._text import cut, pad, printable, spelled_lines, wrap
from arriero.report._words import count

_STYLES: Final = {"error": "bad", "warning": "open", "info": "dim"}
_SHOWN: Final = {"reproduced": "good", "not reproduced": "bad", "could not run": "open"}


def check(
    document: Check | Checks, *, width: int = 80, colour: bool = False, encoding: str = "utf-8"
) -> str:
    """Findings of each command, the worst first, and the command that mends them."""
    checks = document.checks if isinstance(document, Checks) else (document,)
    lines: list[Line] = []
    for one in checks:
        lines += [Line("")] if lines else []
        lines += _check(one, width)
    return finish(lines, colour=colour, encoding=encoding)


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
    return command_lines(argv, width=width, indent="  ")


def _finding(finding: Finding, width: int) -> Iterator[Line]:
    at = f"  [{finding.where}]" if finding.where else ""
    parts = [finding.title, f"because: {finding.because}{at}"]
    if finding.applies == "maybe":
        parts.append(f"maybe, as this is not known: {'; '.join(finding.missing)}")
    if finding.edit:
        parts.append(f"change: {', '.join(map(str, finding.edit))}")
    elif finding.workaround:
        parts.append(f"what to do: {' '.join(finding.workaround.split())}")
    shown = ", ".join(map(str, finding.builds))
    parts.append(finding.status + (f" on {shown}" if shown else ""))
    for part in parts:
        yield from map(Line, wrap(printable(part), width, first="  "))


def gotchas(
    document: Gotchas, *, width: int = 80, colour: bool = False, encoding: str = "utf-8"
) -> str:
    """One line for each: id, severity, standing, builds, number of reproductions."""
    if width < NARROW:
        lines = [line for one in document.gotchas for line in _listed(one, width)]
    else:
        heads = ("ID", "SEVERITY", "STATUS", "RUNS", "BUILDS")
        rows = [
            (g.id, g.severity, g.status, str(len(g.reproductions)), _builds(g))
            for g in document.gotchas
        ]
        lines = grid(heads, rows, width, right=[3], last=width)
    return finish(lines, colour=colour, encoding=encoding)


def _listed(one: GotchaEntry, width: int) -> list[Line]:
    return [Line(cut(one.id, width)), *bullet(f"{one.severity}, {one.status}", width)]


def _builds(one: GotchaEntry) -> str:
    return " ".join(map(str, one.builds)) or "–"


def gotcha(
    doc: GotchaEntry, *, width: int = 80, colour: bool = False, encoding: str = "utf-8"
) -> str:
    """One gotcha as text: its sections, where it comes from, what was seen where."""
    builds = ", ".join(map(str, doc.builds)) or "no build yet"
    head = f"{doc.id} · {doc.kind} · {doc.severity}"
    standing = f"{doc.status} on {builds} · confidence {doc.confidence} · updated {doc.updated}"
    lines = [*wrapped(doc.title, width, style="head"), Line("")]
    lines += [*wrapped(head, width), *wrapped(standing, width)]
    for heading, text in doc.sections.items():
        lines += [Line(""), Line(heading.upper(), "head"), *_paragraphs(text, width)]
    lines.append(Line(""))
    for name, value in facts(doc).items():
        lines += titled(name, printable(value), width)
    for verdict in doc.verdicts:
        lines += [Line(""), *_verdict(verdict, width)]
    return finish(lines, colour=colour, encoding=encoding)


def facts(doc: GotchaEntry) -> dict[str, str]:
    """What the head says besides the standing, by name; what it leaves empty is left out."""
    given = {
        "flags": ", ".join(doc.affects.get("flags", ())),
        "backends": ", ".join(doc.affects.get("backends", ())),
        "architectures": ", ".join(doc.affects.get("architectures", ())),
        "log": " · ".join(doc.log),
        "reported": ", ".join(doc.provenance.get("issues", ())),
        "builds": doc.provenance.get("builds", ""),
        "hardware": doc.provenance.get("hardware", ""),
        "command": doc.provenance.get("command", ""),
        "related": ", ".join(doc.related),
    }
    return {name: value for name, value in given.items() if value}


def _paragraphs(text: str, width: int) -> list[Line]:
    """Paragraphs at a width, an empty line between them."""
    paragraphs = [wrapped(printable(paragraph), width) for paragraph in text.split("\n\n")]
    return [line for i, lines in enumerate(paragraphs) for line in (*[Line("")] * bool(i), *lines)]


def _verdict(verdict: GotchaVerdict, width: int) -> list[Line]:
    build = verdict.build or "unknown build"
    text = f"{verdict.verdict} ({verdict.reproduction}), {verdict.machine}, {verdict.at}"
    lines = titled(str(build), text, width)
    if verdict.reason:
        lines += map(Line, wrap(printable(verdict.reason), width, first="  "))
    if verdict.run is not None and verdict.run.text:
        lines += [
            Line(line, "dim")
            for line in wrap(printable(verdict.run.text), width, first="  > ", rest="    ")
        ]
    return lines


def verdicts(
    document: Verdicts, *, width: int = 80, colour: bool = False, encoding: str = "utf-8"
) -> str:
    """What each reproduction showed, by verdict, with its time and the reason if it has one."""
    lines: list[Line] = []
    for word, style in _SHOWN.items():
        those = [v for v in document.verdicts if v.verdict == word]
        if not those:
            continue
        lines += [Line(f"{word.upper()}  {len(those)}", style)]
        for one in those:
            name = pad(f"  {one.gotcha} ({one.reproduction})", width - 7)
            lines.append(Line(f"{name}{one.seconds:5.0f} s"))
            lines += map(Line, wrap(printable(one.reason), width, first="    ") * bool(one.reason))
        lines.append(Line(""))
    if document.without:
        lines += [Line(f"WITHOUT A REPRODUCTION  {len(document.without)}", "dim")]
        lines += [*bullet(", ".join(document.without), width), Line("")]
    total = sum(v.seconds for v in document.verdicts) / 60
    ended = "" if document.complete else ", interrupted: the rest did not run"
    lines += wrapped(f"build {document.build or 'unknown'}, {total:.1f} minutes{ended}", width)
    return finish(lines, colour=colour, encoding=encoding)
