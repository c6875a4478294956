"""Records for a terminal at 2 a.m.: verdict, command, one table, boundaries, the rest.

A diagnosis takes at most :data:`LINES` lines. Where that is not enough, the least telling parts go
first and the reader is told; the verdict and the command are never shortened.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from arriero.base.sizes import MIB, mib
from arriero.logs.model import Buffer
from arriero.record import (
    Diagnosis,
    Explanation,
    Explanations,
    HistoryEntry,
    Plan,
    Verification,
)
from arriero.report import view
from arriero.report._lines import (
    NARROW,
    Block,
    Line,
    bullet,
    finish,
    gap,
    grid,
    natural,
    paragraph,
    verdict,
    wrapped,
)
from arriero.report._text import cells, command, cut, pad, printable, wrap
from arriero.report._trials import Row, Size, Table
from arriero.report._words import SHORT, count
from arriero.report.screen import options as options
from arriero.report.view import Tone

LINES: Final = 40
_BUFFERS: Final = 16
"""Buffers of one log that are listed."""

# --- documents ---------------------------------------------------------------------------------


def diagnosis(
    doc: Diagnosis, *, width: int = 80, colour: bool = False, encoding: str = "utf-8"
) -> str:
    """A diagnosis, each line ended by a line feed."""
    facts = view.diagnosis(doc)
    # Laid out as if something had to go, which makes the longest footer, then as it turned out.
    chosen, gone, rows_gone = _chosen(_blocks(facts, width, cut_short=True, rows_gone=99))
    if gone or rows_gone:
        lines = _picked(_blocks(facts, width, cut_short=gone, rows_gone=rows_gone), chosen)
    else:
        lines = _picked(_blocks(facts, width, cut_short=False, rows_gone=0), chosen)
    return finish(lines, colour=colour, encoding=encoding)


def _chosen(blocks: Sequence[Block]) -> tuple[set[int], bool, int]:
    """Which blocks fit into :data:`LINES`, whether any else than rows went, and how many rows."""
    chosen: set[int] = set()
    room = LINES
    for index, block in sorted(enumerate(blocks), key=lambda item: item[1].rank):
        if block.rank == 0 or len(block.lines) <= room:
            chosen.add(index)
            room -= len(block.lines)
    left = [block for index, block in enumerate(blocks) if index not in chosen]
    rows = sum(block.row for block in left)
    return chosen, len(left) > rows, rows


def _picked(blocks: Sequence[Block], chosen: set[int]) -> list[Line]:
    return [line for index, block in enumerate(blocks) if index in chosen for line in block.lines]


def _blocks(
    facts: view.DiagnosisView, width: int, *, cut_short: bool, rows_gone: int
) -> list[Block]:
    doc = facts.doc
    more = "more" if cut_short else "record"
    where = f"{more} and upstream text: arriero report {doc.id}"
    footer = f"{facts.effort} · {where}" if view.kept(doc.notes) else facts.effort
    return [
        Block(0, wrapped(" · ".join(facts.setting), width, style="dim")),
        Block(0, [Line("")]),
        *(
            [Block(0, [*wrapped(facts.unfinished, width, style="open"), Line("")])]
            * bool(facts.unfinished)
        ),
        *verdict(facts.finding, width),
        *_run(facts.run, width),
        *_trials(facts.table, width, rows_gone),
        *_edges(facts, width),
        Block(6, [Line("")]),
        Block(4, paragraph("NOT TRIED", "; ".join(facts.not_tried), width)),
        *(Block(5, paragraph("NOTE", caveat, width)) for caveat in facts.caveats),
        Block(0, wrapped(footer, width, style="dim")),
    ]


def explanation(
    doc: Explanation | Explanations,
    *,
    width: int = 80,
    colour: bool = False,
    encoding: str = "utf-8",
) -> str:
    """What one log says, or several logs one after the other."""
    several = doc.explanations if isinstance(doc, Explanations) else (doc,)
    lines: list[Line] = []
    for one in several:
        lines += [*([Line("")] if lines else []), *_log(view.explanation(one), width)]
    return finish(lines, colour=colour, encoding=encoding)


def _log(facts: view.ExplanationView, width: int) -> list[Line]:
    lines = [
        *wrapped(" · ".join(facts.setting), width, style="dim"),
        Line(""),
        *(line for block in verdict(facts.finding, width) for line in block.lines),
    ]
    if facts.known or facts.advice:
        known = facts.doc.known
        more = f"more: arriero gotchas show {known[0].id}" if known else ""
        head = paragraph("WHAT TO DO", more, width) or [Line("WHAT TO DO", "head")]
        lines += [Line(""), *head]
        told = (*facts.known, *facts.advice)
        lines += [line for text in told for line in bullet(text, width)]
    if facts.buffers:
        rows = [
            (
                SHORT[buffer.component],
                mib(buffer.bytes),
                str(buffer.line),
                printable(buffer.device)
                + ("" if buffer.role.value == "main" else f", {buffer.role.value} model"),
            )
            for buffer in _largest(facts.buffers)
        ]
        heads = ("allocated", "MiB", "line", "on")
        lines += [Line(""), *grid(heads, rows, width, right={1, 2})]
        if len(rows) < len(facts.buffers):
            smaller = f"{len(facts.buffers) - len(rows)} smaller ones: --json has all"
            lines += bullet(smaller, width)
    if facts.notices:
        lines += [Line(""), Line("NOTICED", "head")]
        lines += [line for text in facts.notices for line in bullet(text, width)]
    for child in facts.children:
        lines += [Line(""), *_log(child, width)]
    return lines


def _largest(buffers: Sequence[Buffer]) -> list[Buffer]:
    """What fits on a page, in the order of the log."""
    kept = sorted(buffers, key=lambda buffer: -buffer.bytes)[:_BUFFERS]
    return sorted(kept, key=lambda buffer: buffer.line)


def verification(
    doc: Verification, *, width: int = 80, colour: bool = False, encoding: str = "utf-8"
) -> str:
    """A load on a server and whether it got through it."""
    facts = view.verification(doc)
    rows = [
        (
            printable(step.name),
            f"{step.ok}/{step.sent}",
            printable(
                " · ".join(filter(None, (step.shown_by or "NOTHING SHOWED IT", step.detail)))
            ),
        )
        for step in facts.steps
    ]
    lines = [
        *wrapped(" · ".join(facts.setting), width, style="dim"),
        Line(""),
        *(line for block in verdict(facts.finding, width) for line in block.lines),
        *(line for fact in facts.facts for line in bullet(fact, width)),
        Line(""),
        *(grid(("step", "ok", "shown by"), rows, width, right={1}) if rows else []),
        *paragraph("SKIPPED", "; ".join(facts.skipped), width),
        *paragraph("NOTES", " ".join(facts.notes), width),
        *wrapped(
            f"{facts.effort} · record {doc.id}" if view.kept(doc.notes) else facts.effort,
            width,
            style="dim",
        ),
    ]
    return finish(lines, colour=colour, encoding=encoding)


def plan(doc: Plan, *, width: int = 80, colour: bool = False, encoding: str = "utf-8") -> str:
    """What a command will take: verdict, pools, changes, the command to copy and to prove."""
    from arriero.report import _plan_lines

    lines = _plan_lines.lines(view.plan(doc), width)
    return finish(lines, colour=colour, encoding=encoding)


def history(
    entries: Sequence[HistoryEntry],
    *,
    width: int = 80,
    colour: bool = False,
    encoding: str = "utf-8",
) -> str:
    """Records that are kept, one line each; on a narrow screen two, for the ID to stay whole."""
    rows = [
        (
            printable(entry.id),
            printable(entry.created_at)[:16].replace("T", " "),
            ("" if entry.complete else "(not finished) ") + printable(entry.summary),
        )
        for entry in entries
    ]
    if not rows:
        lines = [Line("no records yet")]
    elif width < NARROW:
        lines = [
            line
            for id_, at, summary in rows
            for line in (Line(f"{id_}  {at}", "head", len(id_)), Line(cut(f"  {summary}", width)))
        ]
    else:
        lines = grid(("record", "UTC", "summary"), rows, width)
    return finish(lines, colour=colour, encoding=encoding)


# --- parts -------------------------------------------------------------------------------------


def _run(run: view.Run | None, width: int) -> list[Block]:
    if run is None:
        return []
    style = Tone.GOOD if run.verified else Tone.OPEN
    first, *more = wrap(run.about, width, first=run.title + "  ", rest="    ")
    shown = command(run.argv, run.env, width=width, indent="  ")
    return [
        Block(0, [Line("")]),
        Block(0, [Line(first, style.value, len(run.title)), *map(Line, more)]),
        Block(0, [Line(line, "head", exact=True) for line in shown]),
        *(Block(min(4 * index, 4), bullet(fact, width)) for index, fact in enumerate(run.facts)),
    ]


def _edges(facts: view.DiagnosisView, width: int) -> list[Block]:
    blocks: list[Block] = []
    title = [Line(""), Line("BOUNDARIES" if facts.edges else "SLOPES", "head")]
    column = min(max((cells(edge.flag) for edge in facts.edges), default=0), 12)
    for edge in facts.edges:
        first = f"  {pad(edge.flag, column)}  "
        rest = "    " if width < NARROW else " " * cells(first)
        blocks.append(
            Block(1, [*title, *map(Line, wrap(edge.sentence, width, first=first, rest=rest))])
        )
        title = []
        given = [edge.given_that] if edge.given_that else []
        # On a wide screen what is doubtful rarely takes a line more than what it was given.
        told = [(1, given), (3, edge.doubts)] if width < NARROW else [(1, [*given, *edge.doubts])]
        for rank, texts in (*told, (6, edge.conditions)):
            if texts:
                lines = wrap(" · ".join(texts), width, first=rest)
                blocks.append(Block(rank, list(map(Line, lines))))
    for slope in facts.slopes:
        blocks.append(Block(3, [*title, *bullet(slope, width)]))
        title = []
    return blocks


# --- tables ------------------------------------------------------------------------------------


def _remark(width: int) -> int:
    """Cells that the first failure gets before sizes get any."""
    return 14 if width < NARROW else 18


def _trials(table: Table, width: int, rows_gone: int) -> list[Block]:
    """Heads, rows and legend. Narrow screens lose columns, never rows or the first failure."""
    if not table.rows:
        return []
    labels = _labels([row.change for row in table.rows], 8 if width < NARROW else 18)
    heads, body, right = _fitting(table, labels, width)
    head, *rows = grid(heads, body, width, right=right, last=_remark(width))
    text = [cell for row in body for cell in row]
    legend = [table.unit] if any(SHORT[part] in heads for part in table.components) else []
    legend += ["! refused"] if any(cell.endswith("!") for cell in text) else []
    legend += ["– not printed or not reached"] if "–" in text else []
    if rows_gone:
        legend.append(f"{count(rows_gone, 'trial')} left out")
    below = [
        Line(line, "dim")
        for change, label in labels.items()
        for line in wrap(change, width, first=f"  {label} = ", rest="      ")
    ]
    if legend:
        below += [Line(line, "dim") for line in wrap(" · ".join(legend), width, first="  ")]
    return [
        Block(0, [Line(""), head]),
        *(
            Block((0, 1, 3, 5, 7)[row.weight], [line], row=True)
            for row, line in zip(table.rows, rows, strict=True)
        ),
        Block(0, below),
    ]


def _labels(changes: Sequence[str], longest: int) -> dict[str, str]:
    """Letters for the changes that are too long for a column."""
    long = dict.fromkeys(change for change in changes if cells(change) > longest)
    return {change: chr(ord("A") + index % 26) for index, change in enumerate(long)}


def _fitting(
    table: Table, labels: dict[str, str], width: int
) -> tuple[list[str], list[list[str]], set[int]]:
    """The columns that fit: sizes with one decimal, then whole, then fewer, then no ``ready``."""
    known = len(table.components)
    choices = [(known, True, True), *((number, False, True) for number in range(known, -1, -1))]
    remarks = max(cells(text) for text in ("first failure", *(row.remark for row in table.rows)))
    for number, decimals, ready in [*choices, (0, False, False)]:
        heads = ["#", *table.axes, "change", *(SHORT[part] for part in table.components[:number])]
        sizes = range(2 + len(table.axes), 2 + len(table.axes) + number)
        heads += ["ready", "served", "first failure"] if ready else ["served", "first failure"]
        body = [_cellset(row, labels, number, decimals, ready) for row in table.rows]
        fixed = sum(natural(heads, body)[:-1]) + gap(width) * (len(heads) - 1)
        if fixed + min(remarks, _remark(width)) <= width:
            break
    return heads, body, {0, *range(1, 1 + len(table.axes)), *sizes}


def _cellset(
    row: Row, labels: dict[str, str], number: int, decimals: bool, ready: bool
) -> list[str]:
    ends = [row.ready, row.served] if ready else [row.served if row.ready == "yes" else "no start"]
    return [
        str(row.n),
        *row.axes,
        labels.get(row.change, row.change),
        *(_size(size, decimals) for size in row.sizes[:number]),
        *ends,
        row.remark,
    ]


def _size(size: Size, decimals: bool) -> str:
    if size.bytes is None:
        return "–"
    small = not decimals and 0 < size.bytes < MIB
    return ("<1" if small else mib(size.bytes, int(decimals))) + "!" * size.refused
