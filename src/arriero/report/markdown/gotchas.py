"""Gotchas as Markdown pages that link to one another: what the documentation site is made of."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final

from arriero.record import GotchaEntry, Gotchas, GotchaVerdict
from arriero.report.view.text import printable
from arriero.report.view.words import count

INDEX: Final = "index.md"
_ISSUE: Final = re.compile(r"([\w.-]+/[\w.-]+)#(\d+)")


def pages(document: Gotchas) -> dict[str, str]:
    """File name → text: :data:`INDEX`, and one page for each gotcha."""
    known = {one.id for one in document.gotchas}
    found = {f"{one.id}.md": "\n".join(_page(one, known)) for one in document.gotchas}
    return {INDEX: "\n".join(_index(document)), **found}


def _index(document: Gotchas) -> Iterator[str]:
    proved = sum(one.status == "reproduced" for one in document.gotchas)
    yield "# Gotchas\n"
    yield (
        "What is known to break, or to go differently than a command says. A status is never"
        " written by hand: it follows from the verdicts of `arriero gotchas verify`, which runs a"
        " reproduction and a control with the workaround.\n"
    )
    yield f"{count(len(document.gotchas), 'gotcha')}, {proved} of them reproduced."
    by_bundle = sorted(document.gotchas, key=lambda one: one.bundle)
    for bundle, several in groupby(by_bundle, key=lambda one: one.bundle):
        yield f"\n## {bundle}\n"
        rows = [
            (f"[{g.id}]({g.id}.md)", _cell(g.title), g.severity, g.status, _builds(g.builds))
            for g in several
        ]
        yield from _table(("id", "what happens", "severity", "status", "builds"), rows)
    yield ""


def _page(one: GotchaEntry, known: set[str]) -> Iterator[str]:
    yield f"# {_text(one.title)}\n"
    yield f"`{one.id}` · {one.kind} · {one.severity}\n"
    seen = f" on {_builds(one.builds)}" if one.builds else ""
    yield f"**{one.status}**{seen} · confidence {one.confidence} · updated {one.updated}"
    for heading, text in one.sections.items():
        yield f"\n## {heading}\n"
        yield _linked(_text(text), known)
    yield "\n## Where it comes from\n"
    yield from _bullets(one, known)
    yield "\n## What was seen\n"
    if one.verdicts:
        yield from _verdicts(one.verdicts)
    elif one.reproductions:
        yield f"Not run yet. `arriero gotchas verify {one.id}` runs it."
    else:
        yield "It has no reproduction: the parts at hand cannot show it."
    yield f"\n[All gotchas]({INDEX})\n"


def _bullets(one: GotchaEntry, known: set[str]) -> Iterator[str]:
    given = {
        "concepts": ", ".join(one.concepts),
        "flags": ", ".join(f"`{flag}`" for flag in one.affects.get("flags", ())),
        "backends": ", ".join(one.affects.get("backends", ())),
        "architectures": ", ".join(one.affects.get("architectures", ())),
        "log": ", ".join(f"`{line}`" for line in one.log),
        "reported in": _linked(", ".join(one.provenance.get("issues", ())), known),
        "reporters": str(one.reporters or ""),
        "builds": _text(one.provenance.get("builds", "")),
        "hardware": _text(one.provenance.get("hardware", "")),
        "command": f"`{command}`" if (command := one.provenance.get("command")) else "",
        "related": ", ".join(f"[{other}]({other}.md)" for other in one.related),
    }
    for name, value in given.items():
        if value:
            yield f"- {name}: {value}"


def _verdicts(verdicts: Sequence[GotchaVerdict]) -> Iterator[str]:
    rows = [
        (str(v.build or "unknown"), v.reproduction, v.verdict, _cell(v.machine), v.at)
        for v in verdicts
    ]
    yield from _table(("build", "reproduction", "verdict", "machine", "day"), rows)
    for verdict in verdicts:
        yield f"\n### {verdict.reproduction} on {verdict.build or 'an unknown build'}\n"
        if verdict.reason:
            yield f"{_text(verdict.reason)}\n"
        for name, run in (("run", verdict.run), ("control", verdict.control)):
            if run is None:
                continue
            environ = "".join(f"{key}={value} " for key, value in run.env.items())
            limit = f", address space {run.limit} bytes" if run.limit else ""
            status = "" if run.exit_status is None else f", exit status {run.exit_status}"
            yield f"- {name}: `{environ}llama-server -m MODEL {run.flags}`{limit}"
            answered = f"{run.requests.ok} of {count(run.requests.sent, 'request')} answered"
            yield f"  - {run.outcome.value}{status}, {answered}"
            if run.text:
                yield f"  - `{printable(run.text).replace('`', chr(39))}`"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _builds(builds: Sequence[int]) -> str:
    return ", ".join(map(str, builds)) or "–"


def _cell(text: str) -> str:
    return _text(text).replace("|", "\\|")


def _text(text: str) -> str:
    """Text whose lines stay; what would be markup outside of `code` is taken for what it is."""
    parts = text.split("`")
    for at in range(0, len(parts), 2):  # every second part is code
        parts[at] = re.sub(r"([<*_\[])", r"\\\1", parts[at])
    return "`".join(parts)


def _linked(text: str, known: set[str]) -> str:
    """Issues linked to where they are, and ids of gotchas to their pages."""
    text = _ISSUE.sub(r"[\1#\2](https://github.com/\1/issues/\2)", text)
    return re.sub(
        r"`([a-z0-9-]+)`",
        lambda match: f"[`{match[1]}`]({match[1]}.md)" if match[1] in known else match[0],
        text,
    )
