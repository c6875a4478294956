"""Write ``docs/coverage.md``: what Arriero says about each of the public reports.

``tests/coverage/reports.jsonl`` has the facts of each report, ``tries.yaml`` beside it the command
and the lines of log to give to Arriero for it, and what must be said: the cause (the id of a
gotcha, ``kind/component`` of a failure, ``notice:id``, words of a plan) and the change. Both in
one answer make a report covered, the cause alone partly. ``at_most`` is for reports whose cause
nobody knows, ``reason`` for those that are not covered.
"""

from __future__ import annotations

import functools
import json
import re
import shlex
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from arriero.gguf import Shape, presets, write_model
from arriero.gguf.projector import Projector, write_projector
from arriero.gguf.writer import encode, header_bytes
from arriero.jobs import check, explain, plan
from arriero.logs.notices import NOTICES
from arriero.memory import parse_pools
from arriero.record import Check, Explanation, Plan
from arriero.store import Store

ROOT: Final = Path(__file__).parent.parent
DATA: Final = ROOT / "tests" / "coverage"
PAGE: Final = ROOT / "docs" / "coverage.md"
LEVELS: Final = ("not", "partly", "covered")
_USUAL: Final = "host=64GiB"


@dataclass(frozen=True)
class Told:
    """What one answer of Arriero said of a report: each None where it did not."""

    by: str
    cause: str | None = None
    change: str | None = None

    @property
    def level(self) -> str:
        if self.cause is None:
            return "not"
        return "partly" if self.change is None else "covered"


@dataclass(frozen=True)
class Row:
    """One report and the best answer to it."""

    report: Mapping[str, Any]
    level: str
    told: Told | None
    reason: str


def reports() -> list[dict[str, Any]]:
    """The facts of the public reports."""
    text = (DATA / "reports.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def tries() -> dict[str, dict[str, Any]]:
    """By the id of a report: what to give to Arriero, and what it must say."""
    found: dict[str, dict[str, Any]] = yaml.safe_load((DATA / "tries.yaml").read_text("utf-8"))
    return found


class Desk:
    """Gives commands and logs to Arriero and notes what is said."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._store = Store(directory / "records")
        self._model = functools.cache(self._written)

    def row(self, report: Mapping[str, Any], entry: Mapping[str, Any]) -> Row:
        """The best of the answers to one report."""
        told = [self.ask(one, report) for one in entry.get("tries", ())]
        best = max(told, key=lambda one: LEVELS.index(one.level), default=None)
        level = best.level if best else "not"
        level = min(level, entry.get("at_most", level), key=LEVELS.index)
        return Row(report, level, best, entry.get("reason", ""))

    def ask(self, one: Mapping[str, Any], report: Mapping[str, Any]) -> Told:
        """What one command, or one log, is answered."""
        if "explain" in one:
            log = one["explain"] if isinstance(one["explain"], list) else report["log_lines"]
            return of_log(_explained(log), one)
        words = self._words(one["check"] if "check" in one else one["plan"], one)
        budget = parse_pools(one.get("budget", _USUAL))
        build = one.get("build", 10434)
        if "check" in one:
            options = check.CheckOptions(budget=budget, assume_build=build)
            environ = one.get("env", {})
            document = check.check(words, options, environ=environ, cwd=self._directory)
            return of_check(document, one)
        plans = plan.PlanOptions(budget=budget, assume_build=build)
        return of_plan(plan.plan(words, plans, store=self._store, environ=one.get("env", {})), one)

    def _words(self, text: str, one: Mapping[str, Any]) -> list[str]:
        files = {
            "MODEL": self._model(json.dumps(one.get("model"))),
            "MMPROJ": self._model(json.dumps(one.get("mmproj"))),
            "DRAFT": self._model(json.dumps(one.get("draft"))),
        }
        return [files.get(word, word) for word in shlex.split(text)]

    def _written(self, what: str) -> str:
        """The file of a shape (a preset's name, or its fields), a projector or bare header keys."""
        given = json.loads(what)
        if given is None:
            return "missing.gguf"
        path = self._directory / f"model-{abs(hash(what))}.gguf"
        if isinstance(given, dict) and "header" in given:
            keys = [(key, encode(value)) for key, value in given["header"].items()]
            path.write_bytes(b"".join(header_bytes(keys, ())))
            return str(path)
        if isinstance(given, dict) and "kind" in given:
            return str(write_projector(path, Projector(**given), weights="zeros"))
        shape = getattr(presets, given) if isinstance(given, str) else Shape(**given)
        return str(write_model(path, shape, weights="zeros"))


@functools.cache
def _explained_text(text: str) -> Explanation:
    return explain.explain_chunks([text.encode()], "-")


def _explained(lines: list[str]) -> Explanation:
    found = _explained_text("".join(line + "\n" for line in lines))
    return next((one for one in found.children if one.failure), found)


def of_log(said: Explanation, want: Mapping[str, Any]) -> Told:
    """What ``explain`` said of the cause and the change that are wanted."""
    cause, by = str(want["cause"]), f"`explain`: {want['cause']}"
    known = [one for one in said.known if one.id == cause]
    if known:
        return Told(by, cause, _found(want["change"], [known[0].workaround]))
    failure = said.failure
    named = "/".join(filter(None, (failure.kind, failure.component))) if failure else ""
    notices = {f"notice:{one.id}" for one in said.notices}
    if cause != named and cause not in notices:
        return Told(by)
    changes = [one.change for one in said.advice] + [one.workaround for one in said.known]
    changes += [NOTICES.get(one.id, "") for one in said.notices if cause == f"notice:{one.id}"]
    return Told(by, cause, _found(want["change"], changes))


def of_check(said: Check, want: Mapping[str, Any]) -> Told:
    """What ``check`` said of the cause and the change that are wanted."""
    cause, by = want["cause"], f"`check`: {want['cause']}"
    for one in said.findings:
        if one.id == cause and re.search(want.get("because", ""), one.because):
            edits = " ".join(map(str, one.edit or ()))
            return Told(by, one.because, _found(want["change"], [edits, one.workaround]))
    return Told(by)


def of_plan(said: Plan, want: Mapping[str, Any]) -> Told:
    """What ``plan`` said: ``does not fit``, or that it has a size for each named component."""
    cause, by = want["cause"], f"`plan`: {want['cause']}"
    sized = {one.component.value for one in said.buffers if one.bytes is not None}
    true = said.fits is False if cause == "does not fit" else set(cause.split(", ")) <= sized
    changes = [one.change for one in said.advice]
    if want.get("change") == "none needed":
        return Told(by, cause if true else None, "the answer itself" if true else None)
    return Told(by, cause if true else None, _found(want["change"], changes))


def _found(pattern: str, texts: list[str]) -> str | None:
    """The piece of the texts that the pattern names; None if none has it."""
    for text in texts:
        if match := re.search(pattern, " ".join(text.split())):
            return match.group()
    return None


def rows(directory: Path) -> list[Row]:
    """Every report with what Arriero says of it."""
    desk, entries = Desk(directory), tries()
    return [desk.row(report, entries[report["id"]]) for report in reports()]


def page(found: list[Row]) -> str:
    """The rows as a page."""
    return "".join(line + "\n" for line in _lines(found))


def _lines(found: list[Row]) -> Iterator[str]:
    counts = Counter(row.level for row in found)
    yield "# What Arriero tells people about known failures"
    yield ""
    yield f"{len(found)} public reports of failures with llama.cpp's server, each given to Arriero"
    yield "as its reporter had it: the command, or the lines of the log. Covered: the answer names"
    yield "the cause and what to change. Partly: only the cause, or only what happened if nobody"
    yield "knows the cause. `scripts/coverage_page.py` asks Arriero and writes this page;"
    yield "`tests/coverage` has the facts, the questions and what counts as an answer."
    yield ""
    yield "| | reports |"
    yield "|---|---|"
    for level in reversed(LEVELS):
        yield f"| {level} | {counts[level]} |"
    yield ""
    yield "| report | source | | told by | change |"
    yield "|---|---|---|---|---|"
    for row in found:
        yield _line(row)


def _line(row: Row) -> str:
    told = row.told
    by = told.by if told and told.cause else ""
    change = f"`{told.change}`" if told and told.change and row.level == "covered" else row.reason
    cells = (row.report["id"], row.report["source"], row.level, by, change)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        found = rows(Path(scratch))
    PAGE.write_text(page(found), encoding="utf-8")
    counts = Counter(row.level for row in found)
    print(", ".join(f"{counts[level]} {level}" for level in reversed(LEVELS)))
    if "-v" in sys.argv:
        for row in found:
            if row.level != "covered":
                print(row.level, row.report["id"], row.told and row.told.by, row.reason)


if __name__ == "__main__":
    main()
