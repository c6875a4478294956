"""The list of records, for a terminal."""

from __future__ import annotations

from arriero.record import History
from arriero.report.terminal.lines import NARROW, Line, grid
from arriero.report.view.text import cut, printable


def lines(doc: History, width: int) -> list[Line]:
    """Records that are kept, one line each; on a narrow screen two, for the ID to stay whole."""
    rows = [
        (
            printable(entry.id),
            printable(entry.created_at)[:16].replace("T", " "),
            ("" if entry.complete else "(not finished) ") + printable(entry.summary),
        )
        for entry in doc.entries
    ]
    if not rows:
        return [Line("no records yet")]
    if width < NARROW:
        return [
            line
            for id_, at, summary in rows
            for line in (Line(f"{id_}  {at}", "head", len(id_)), Line(cut(f"  {summary}", width)))
        ]
    return grid(("record", "UTC", "summary"), rows, width)
