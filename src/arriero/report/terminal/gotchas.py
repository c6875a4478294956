"""Known failures and what reproductions of them showed, for a terminal."""

from __future__ import annotations

from typing import Final

from arriero.record import GotchaEntry, Gotchas, GotchaVerdict, Verdicts
from arriero.report.terminal.lines import NARROW, Line, bullet, gap, grid, natural, titled, wrapped
from arriero.report.view.text import cells, cut, pad, printable, wrap

_TITLE: Final = 60
"""Cells of a title that say what it is about."""
_SHOWN: Final = {"reproduced": "good", "not reproduced": "bad", "could not run": "open"}


def every_lines(doc: Gotchas, width: int) -> list[Line]:
    """What each is about: on one line where most of its title has room there, else on two."""
    heads = ("ID", "SEVERITY", "STATUS", "WHAT HAPPENS")
    rows = [(one.id, one.severity, one.status, printable(one.title)) for one in doc.gotchas]
    if width - sum(natural(heads, rows)[:-1]) - 3 * gap(width) >= _TITLE:
        return grid(heads, rows, width, last=width)
    return [line for one in doc.gotchas for line in _listed(one, width)]


def _listed(one: GotchaEntry, width: int) -> list[Line]:
    standing = f"{one.severity}, {one.status}"
    whole = cells(one.id) + gap(width) + cells(standing) <= width
    head = [Line(f"{one.id}{' ' * gap(width)}{standing}", "head", len(one.id))]
    apart = [Line(cut(one.id, width), "head"), *bullet(standing, width)]
    title = printable(one.title)
    told = bullet(title, width) if width < NARROW else [Line("  " + cut(title, width - 2))]
    return [*(head if whole else apart), *told]


def one_lines(doc: GotchaEntry, width: int) -> list[Line]:
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
    return lines


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


def verdict_lines(doc: Verdicts, width: int) -> list[Line]:
    """What each reproduction showed, by verdict, with its time and the reason if it has one."""
    lines: list[Line] = []
    for word, style in _SHOWN.items():
        those = [v for v in doc.verdicts if v.verdict == word]
        if not those:
            continue
        lines += [Line(f"{word.upper()}  {len(those)}", style)]
        for one in those:
            name = pad(f"  {one.gotcha} ({one.reproduction})", width - 7)
            lines.append(Line(f"{name}{one.seconds:5.0f} s"))
            lines += map(Line, wrap(printable(one.reason), width, first="    ") * bool(one.reason))
        lines.append(Line(""))
    if doc.without:
        lines += [Line(f"WITHOUT A REPRODUCTION  {len(doc.without)}", "dim")]
        lines += [*bullet(", ".join(doc.without), width), Line("")]
    total = sum(v.seconds for v in doc.verdicts) / 60
    ended = "" if doc.complete else ", interrupted: the rest did not run"
    lines += wrapped(f"build {doc.build or 'unknown'}, {total:.1f} minutes{ended}", width)
    return lines
