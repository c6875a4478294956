"""Checks and gotchas for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from arriero.record import Check, Checks, Finding, GotchaEntry, Gotchas, Verdicts
from arriero.report._text import command, encoded, pad, printable, wrap
from arriero.report._words import count

_COLOURS: Final = {"error": "1;31", "warning": "1;33", "info": "2", "good": "1;32"}


def check(
    document: Check | Checks, *, width: int = 80, colour: bool = False, encoding: str = "utf-8"
) -> str:
    """Findings of each command, the worst first, and the command that mends them."""
    checks = document.checks if isinstance(document, Checks) else (document,)
    blocks = ["\n".join(_check(one, width, colour, encoding)) for one in checks]
    return "\n\n".join(blocks) + "\n"


def _check(doc: Check, width: int, colour: bool, encoding: str) -> Iterator[str]:
    def line(text: str, tone: str = "", *, exact: bool = False) -> str:
        text = encoded(printable(text), encoding, exact=exact)
        return f"\x1b[{_COLOURS[tone]}m{text}\x1b[0m" if colour and tone else text

    rules = f"build {doc.build}" if doc.build else "the newest build known"
    where = f"{doc.where} · " if doc.where else ""
    number = count(len(doc.findings), "finding") if doc.findings else "nothing found"
    yield line(f"{where}{number}, by the rules of {rules}")
    for finding in doc.findings:
        yield ""
        yield line(f"{finding.severity.upper()}  {finding.id}", finding.severity)
        for part in _finding(finding):
            yield from map(line, wrap(part, width, first="  "))
    for note in doc.notes:
        yield ""
        yield from map(line, wrap(note, width))
    if doc.fixed_argv is not None:
        yield ""
        yield line("FIXED", "good")
        for text in command(doc.fixed_argv, width=width, indent="  "):
            yield line(text, exact=True)
    if doc.unchecked:
        yield ""
        yield line(f"{len(doc.unchecked)} not checked:")
        for missing in dict.fromkeys(one.missing for one in doc.unchecked):
            ids = ", ".join(one.id for one in doc.unchecked if one.missing == missing)
            yield from map(line, wrap(f"{ids}: {missing}", width, first="  "))


def _finding(finding: Finding) -> Iterator[str]:
    yield finding.title
    yield f"because: {finding.because}" + (f"  [{finding.where}]" if finding.where else "")
    if finding.applies == "maybe":
        yield f"maybe: not known is {'; '.join(finding.missing)}"
    if finding.edit:
        yield f"change: {', '.join(map(str, finding.edit))}"
    shown = ", ".join(map(str, finding.builds))
    yield f"{finding.status}" + (f" on {shown}" if shown else "")


def gotchas(
    document: Gotchas, *, width: int = 80, colour: bool = False, encoding: str = "utf-8"
) -> str:
    """One line for each: id, severity, standing, builds."""
    rows = [
        (
            g.id,
            g.severity,
            g.status,
            " ".join(map(str, g.builds)) or "-",
            str(len(g.reproductions)),
        )
        for g in document.gotchas
    ]
    return _table([("ID", "SEVERITY", "STATUS", "BUILDS", "RUNS"), *rows], width, encoding)


def gotcha(
    doc: GotchaEntry, *, width: int = 80, colour: bool = False, encoding: str = "utf-8"
) -> str:
    """One gotcha as text: its sections, where it comes from, what was seen where."""
    lines = [doc.title, ""]
    builds = ", ".join(map(str, doc.builds)) or "no build yet"
    lines.append(f"{doc.id} · {doc.kind} · {doc.severity}")
    lines.append(f"{doc.status} on {builds} · confidence {doc.confidence} · updated {doc.updated}")
    for heading, text in doc.sections.items():
        lines += ["", heading.upper(), *wrapped(text, width)]
    facts = {
        "flags": ", ".join(doc.affects.get("flags", ())),
        "backends": ", ".join(doc.affects.get("backends", ())),
        "reported": ", ".join(doc.provenance.get("issues", ())),
        "builds": doc.provenance.get("builds", ""),
        "hardware": doc.provenance.get("hardware", ""),
        "command": doc.provenance.get("command", ""),
        "related": ", ".join(doc.related),
    }
    lines.append("")
    for name, value in facts.items():
        if value:
            lines += wrap(f"{name}: {value}", width, rest="  ")
    for verdict in doc.verdicts:
        reason = f": {verdict.reason}" if verdict.reason else ""
        text = f"{verdict.build} {verdict.reproduction} ({verdict.machine}): {verdict.verdict}"
        lines += wrap(text + reason, width, rest="  ")
        if verdict.run is not None and verdict.run.text:
            lines += wrap(verdict.run.text, width, first="    ")
    return "\n".join(encoded(printable(line), encoding) for line in lines) + "\n"


def wrapped(text: str, width: int) -> list[str]:
    """Paragraphs at a width, an empty line between them."""
    paragraphs = [wrap(paragraph, width) for paragraph in text.split("\n\n")]
    return [line for i, lines in enumerate(paragraphs) for line in (*[""] * bool(i), *lines)]


def verdicts(
    document: Verdicts, *, width: int = 80, colour: bool = False, encoding: str = "utf-8"
) -> str:
    """What each reproduction showed."""
    rows = [
        (v.gotcha, v.reproduction, v.verdict, f"{v.seconds:.0f} s", v.reason)
        for v in document.verdicts
    ]
    total = sum(v.seconds for v in document.verdicts)
    table = _table([("ID", "RUN", "VERDICT", "TIME", ""), *rows], width, encoding)
    return f"{table}build {document.build or 'unknown'}, {total / 60:.1f} minutes\n"


def _table(rows: Sequence[Sequence[str]], width: int, encoding: str) -> str:
    last = len(rows[0]) - 1
    columns = [max(len(row[i]) for row in rows) for i in range(last)]
    left = max(8, width - sum(columns) - 2 * last)
    lines = []
    for row in rows:
        cells = [pad(printable(text), size) for text, size in zip(row, columns, strict=False)]
        cells.append(pad(printable(row[last]), left).rstrip())
        lines.append(encoded("  ".join(cells).rstrip(), encoding))
    return "\n".join(lines) + "\n"
