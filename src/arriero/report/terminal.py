"""Records for a terminal at 2 a.m.: verdict, command, one table, boundaries, the rest.

A diagnosis takes at most :data:`LINES` lines. Where that is not enough, the least telling parts go
first and the reader is told; the verdict and the command are never shortened.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TextIO, TypedDict

from arriero.base.sizes import MIB, mib
from arriero.record.documents import (
    Diagnosis,
    Explanation,
    Explanations,
    HistoryEntry,
    Plan,
    Verification,
)
from arriero.report import view
from arriero.report._plans import Contents, Fix, Reach, Share, left
from arriero.report._text import cells, command, cut, encoded, pad, printable, wrap
from arriero.report._trials import Row, Size, Table
from arriero.report._words import SHORT, count
from arriero.report.view import Finding, Tone

LINES: Final = 40
_NARROW: Final = 60
_COLOURS: Final = {"good": "1;32", "bad": "1;31", "open": "1;33", "head": "1", "dim": "2"}


class Options(TypedDict):
    width: int
    colour: bool
    encoding: str


def options(stream: TextIO) -> Options:
    """How to print on ``stream``: 80 columns without colour unless it is a terminal."""
    width, colour = 80, False
    if stream.isatty():
        try:
            width = os.get_terminal_size(stream.fileno()).columns or 80
        except (OSError, ValueError):
            width = 80
        colour = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return Options(width=max(width, 20), colour=colour, encoding=stream.encoding or "ascii")


@dataclass(frozen=True)
class Line:
    """One line. ``style`` colours its first ``span`` characters, all of it when ``span`` is 0."""

    text: str
    style: str = ""
    span: int = 0
    exact: bool = False
    """To be pasted: no character of it is replaced."""


@dataclass(frozen=True)
class Block:
    """Lines that are shown together or not at all; rank 0 is always shown, then 1, 2, ..."""

    rank: int
    lines: Sequence[Line]
    row: bool = False


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
    return _finish(lines, colour=colour, encoding=encoding)


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
    footer = f"{facts.effort} · {more} and upstream text: arriero report {doc.id}"
    return [
        Block(0, _wrapped(" · ".join(facts.setting), width, style="dim")),
        Block(0, [Line("")]),
        *(
            [Block(0, [*_wrapped(facts.unfinished, width, style="open"), Line("")])]
            * bool(facts.unfinished)
        ),
        *_finding(facts.finding, width),
        *_run(facts.run, width),
        *_trials(facts.table, width, rows_gone),
        *_edges(facts, width),
        Block(6, [Line("")]),
        Block(4, _paragraph("NOT TRIED", "; ".join(facts.not_tried), width)),
        *(Block(5, _paragraph("NOTE", caveat, width)) for caveat in facts.caveats),
        Block(0, _wrapped(footer, width, style="dim")),
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
    return _finish(lines, colour=colour, encoding=encoding)


def _log(facts: view.ExplanationView, width: int) -> list[Line]:
    lines = [
        *_wrapped(" · ".join(facts.setting), width, style="dim"),
        Line(""),
        *(line for block in _finding(facts.finding, width) for line in block.lines),
    ]
    if facts.buffers:
        rows = [
            (
                SHORT[buffer.component],
                mib(buffer.bytes),
                str(buffer.line),
                printable(buffer.device)
                + ("" if buffer.role.value == "main" else f", {buffer.role.value} model"),
            )
            for buffer in facts.buffers
        ]
        heads = ("allocated", "MiB", "line", "on")
        lines += [Line(""), *_grid(heads, rows, width, right={1, 2})]
    if facts.notices:
        lines += [Line(""), Line("NOTICED", "head")]
        lines += [line for text in facts.notices for line in _bullet(text, width)]
    for child in facts.children:
        lines += [Line(""), *_log(child, width)]
    return lines


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
        *_wrapped(" · ".join(facts.setting), width, style="dim"),
        Line(""),
        *(line for block in _finding(facts.finding, width) for line in block.lines),
        *(line for fact in facts.facts for line in _bullet(fact, width)),
        Line(""),
        *(_grid(("step", "ok", "shown by"), rows, width, right={1}) if rows else []),
        *_paragraph("SKIPPED", "; ".join(facts.skipped), width),
        *_paragraph("NOTES", " ".join(facts.notes), width),
        *_wrapped(f"{facts.effort} · record {doc.id}", width, style="dim"),
    ]
    return _finish(lines, colour=colour, encoding=encoding)


def plan(doc: Plan, *, width: int = 80, colour: bool = False, encoding: str = "utf-8") -> str:
    """What a command will take: verdict, pools, changes, the command to copy and to prove."""
    facts = view.plan(doc)
    used = [one for one in facts.pools if one.shares or one.fits is False]
    idle = [one for one in facts.pools if one not in used]
    notes = [line for note in facts.notes for line in _paragraph("NOTE", note, width)]
    lines = [
        *_wrapped(" · ".join(facts.setting), width, style="dim"),
        Line(""),
        *(line for block in _finding(facts.finding, width) for line in block.lines),
        *(_wrapped("; ".join(facts.context), width) if facts.context else []),
        *_shares(used, width),
        *([Line("")] * bool(idle)),
        *(line for one in idle for line in _titled(one.title, f"{one.about}; unused", width)),
        *_frontier(facts.reaches, width),
        *([Line("")] * bool(notes)),
        *notes,
        *_fixes(facts.fixes, facts.enough, width),
        *_commands(facts, width),
        *(_wrapped(f"to share it: arriero report {doc.id}", width, style="dim") if doc.id else []),
    ]
    return _finish(lines, colour=colour, encoding=encoding)


def history(
    entries: Sequence[HistoryEntry],
    *,
    width: int = 80,
    colour: bool = False,
    encoding: str = "utf-8",
) -> str:
    """Records that are kept, one line each."""
    rows = [
        (
            printable(entry.id),
            printable(entry.created_at)[:16].replace("T", " "),
            ("" if entry.complete else "(not finished) ") + printable(entry.summary),
        )
        for entry in entries
    ]
    heads = ("record", "UTC", "summary")
    lines = _grid(heads, rows, width) if rows else [Line("no records yet")]
    return _finish(lines, colour=colour, encoding=encoding)


# --- parts -------------------------------------------------------------------------------------


def _wrapped(text: str, width: int, *, style: str = "") -> list[Line]:
    return [Line(line, style) for line in wrap(text, width)]


def _bullet(text: str, width: int) -> list[Line]:
    return [Line(line) for line in wrap(text, width, first="  ", rest="    ")]


def _paragraph(title: str, text: str, width: int) -> list[Line]:
    """A run-in heading and its text; nothing without text."""
    if not text:
        return []
    first, rest = (title + "  ", "  ") if width < _NARROW else (title.ljust(11), " " * 11)
    first, *more = wrap(text, width, first=first, rest=rest)
    return [Line(first, "head", len(title)), *map(Line, more)]


def _finding(finding: Finding, width: int) -> list[Block]:
    word = finding.word
    indent = "  " if width < _NARROW or cells(word) > 8 else " " * (len(word) + 2)
    first, *more = wrap(finding.sentence, width, first=word + "  ", rest=indent)
    blocks = [Block(0, [Line(first, finding.tone.value, len(word)), *map(Line, more)])]
    if finding.sizes:
        lines = wrap(finding.sizes, width, first=indent, rest=indent + "  ")
        blocks.append(Block(0, list(map(Line, lines))))
    if finding.quote:
        lines = wrap(finding.quote, width, first=indent + "> ", rest=indent + "  ")
        if len(lines) > 3:
            lines = [*lines[:2], cut(lines[2], width - 1) + "…"]
        blocks.append(Block(2, [Line(line, "dim") for line in lines]))
    if finding.details:
        lines = wrap(" ".join(finding.details), width, first=indent, rest=indent)
        blocks.append(Block(2, list(map(Line, lines))))
    return blocks


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
        *(Block(min(4 * index, 4), _bullet(fact, width)) for index, fact in enumerate(run.facts)),
    ]


def _edges(facts: view.DiagnosisView, width: int) -> list[Block]:
    blocks: list[Block] = []
    title = [Line(""), Line("BOUNDARIES" if facts.edges else "SLOPES", "head")]
    column = min(max((cells(edge.flag) for edge in facts.edges), default=0), 12)
    for edge in facts.edges:
        first = f"  {pad(edge.flag, column)}  "
        rest = "    " if width < _NARROW else " " * cells(first)
        blocks.append(
            Block(1, [*title, *map(Line, wrap(edge.sentence, width, first=first, rest=rest))])
        )
        title = []
        given = [edge.given_that] if edge.given_that else []
        # On a wide screen what is doubtful rarely takes a line more than what it was given.
        told = [(1, given), (3, edge.doubts)] if width < _NARROW else [(1, [*given, *edge.doubts])]
        for rank, texts in (*told, (6, edge.conditions)):
            if texts:
                lines = wrap(" · ".join(texts), width, first=rest)
                blocks.append(Block(rank, list(map(Line, lines))))
    for slope in facts.slopes:
        blocks.append(Block(3, [*title, *_bullet(slope, width)]))
        title = []
    return blocks


# --- plans -------------------------------------------------------------------------------------


def _label(share: Share) -> str:
    return "  ".join(filter(None, (share.name, *share.about)))


def _shares(pools: Sequence[Contents], width: int) -> list[Line]:
    """Each pool, a line for each share of it, and what that leaves."""
    shares = [share for one in pools for share in one.shares]
    if not shares:
        return []
    narrow = width < _NARROW
    number = max(cells(_planned_size(share, narrow)) for share in shares)
    column = max(cells(_label(share)) for share in shares)
    column = max(4, min(column, width - number - (16 if narrow else 26)))
    lines: list[Line] = []
    for one in pools:
        lines += [Line(""), *_titled(one.title, one.about, width)]
        for share in one.shares:
            label, about = _label(share), share.about
            if cells(label) <= column:
                about = ()
            else:
                label = share.name
            remark = "; ".join(filter(None, (share.method, ", ".join(about), share.remark)))
            size = pad(_planned_size(share, narrow), number, right=True)
            start = f"  {pad(label, column)}  {size}  "
            rest = "      " if narrow else " " * cells(start)
            lines += map(Line, wrap(remark, width, first=start, rest=rest))
        tone = {True: Tone.GOOD, False: Tone.BAD, None: Tone.OPEN}[one.fits]
        verdict = wrap(one.verdict, width, first="  → ", rest="    ")
        lines += [Line(line, tone.value) for line in verdict]
    return lines


def _titled(title: str, text: str, width: int) -> list[Line]:
    """A heading and the text behind it."""
    title = cut(title, width // 2)
    first, *more = wrap(text, width, first=title + "  ", rest="  ")
    return [Line(first, "head", len(title)), *map(Line, more)]


def _planned_size(share: Share, narrow: bool) -> str:
    size = share.buffer.bytes
    if size is None:
        return "?"
    return f"{share.bound} {mib(size, 0 if narrow and size >= MIB else 1)}".lstrip()


def _frontier(reaches: Sequence[Reach], width: int) -> list[Line]:
    if not reaches:
        return []
    narrow = width < _NARROW
    rows = []
    for reach in reaches:
        end = reach.limited_by
        if reach.room and not narrow:
            end += f", {reach.room}"
        if reach.now:
            end += " ←" if narrow else f" ← {reach.now}"
        rows.append((reach.slots, reach.tokens, reach.each, end))
    heads = ("slots", "tokens in all", "of one slot", "limited by")
    if narrow:
        heads = ("slots", "tokens", "a slot", "limited by")
    title = Line("LARGEST CONTEXT for each number of slots", "head")
    return [Line(""), title, *_grid(heads, rows, width, right={0, 1, 2}, last=20)]


def _fixes(fixes: Sequence[Fix], enough: str, width: int) -> list[Line]:
    """Changes, cheapest first, the recommended one marked."""
    if not fixes:
        return []
    pools = {fix.pool for fix in fixes}
    where = f" on {next(iter(pools))}" if len(pools) == 1 and fixes[0].pool else ""
    rows = []
    for fix in fixes:
        room = "?" if fix.headroom is None else _signed(fix.headroom)
        if len(pools) > 1 and fix.pool:
            room = f"{fix.pool} {room}"
        mark = "→" if fix.advice.recommended else ""
        rows.append((mark, fix.change, room, fix.costs))
    heads = ("", "FIX, cheapest first", f"MiB left{where}", "costs")
    widths = _widths(heads, rows)
    if sum(widths) + 3 * _gap(width) <= width:
        lines = _grid(heads, rows, width, right={2}, last=widths[-1])
    else:
        lines = [Line("FIX, cheapest first", "head")]
        for mark, change, room, costs in rows:
            text = f"{change}: leaves {room} MiB{where}; costs {costs}"
            lines += map(Line, wrap(text, width, first=f"{mark or ' '} ", rest="    "))
    return [Line(""), *lines, *(_wrapped(enough, width) if enough else [])]


def _signed(size: int) -> str:
    return left(size).removesuffix(" MiB").replace("-", "−")


def _commands(facts: view.PlanView, width: int) -> list[Line]:
    lines: list[Line] = []
    if facts.copy:
        shown = command(facts.copy, {}, width=width, indent="  ")
        lines += [Line(""), *_paragraph("COPY", "the recommended change (→):", width)]
        lines += [Line(line, "head", exact=True) for line in shown]
    if facts.prove and facts.prove == facts.copy:
        lines += _paragraph("PROVE", "arriero verify -- <that>", width)
    elif facts.prove:
        shown = command(("arriero", "verify", "--", *facts.prove), {}, width=width, indent="  ")
        lines += [Line(""), Line("PROVE", "head")]
        lines += [Line(line, exact=True) for line in shown]
    return lines


# --- tables ------------------------------------------------------------------------------------


def _widths(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(cells, column)) for column in zip(heads, *rows, strict=True)]


def _grid(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int,
    *,
    right: Iterable[int] = (),
    last: int = 24,
) -> list[Line]:
    """Columns as wide as their content; the last one gets ``last`` cells, or what is left."""
    widths = _widths(heads, rows)
    gap = _gap(width)
    last = min(widths[-1], last, width // 2)
    while sum(widths[:-1]) + gap * (len(widths) - 1) + last > width and max(widths[:-1]) > 4:
        widths[widths.index(max(widths[:-1]))] -= 1
    widths[-1] = max(1, width - sum(widths[:-1]) - gap * (len(widths) - 1))
    ragged = set(right)

    def line(row: Sequence[str]) -> str:
        shown = (
            pad(cell, column, right=index in ragged)
            for index, (cell, column) in enumerate(zip(row, widths, strict=True))
        )
        return cut((" " * gap).join(shown).rstrip(), width)

    return [Line(line(heads), "head"), *(Line(line(row)) for row in rows)]


def _gap(width: int) -> int:
    return 1 if width < _NARROW else 2


def _remark(width: int) -> int:
    """Cells that the first failure gets before sizes get any."""
    return 14 if width < _NARROW else 18


def _trials(table: Table, width: int, rows_gone: int) -> list[Block]:
    """Heads, rows and legend. Narrow screens lose columns, never rows or the first failure."""
    if not table.rows:
        return []
    labels = _labels([row.change for row in table.rows], 8 if width < _NARROW else 18)
    heads, body, right = _fitting(table, labels, width)
    head, *rows = _grid(heads, body, width, right=right, last=_remark(width))
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
        fixed = sum(_widths(heads, body)[:-1]) + _gap(width) * (len(heads) - 1)
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


# --- output ------------------------------------------------------------------------------------


def _finish(lines: Iterable[Line], *, colour: bool, encoding: str) -> str:
    return "".join(_painted(line, colour, encoding) + "\n" for line in lines)


def _painted(line: Line, colour: bool, encoding: str) -> str:
    span = line.span or len(line.text)
    head = encoded(line.text[:span], encoding, exact=line.exact)
    tail = encoded(line.text[span:], encoding, exact=line.exact)
    if colour and line.style:
        head = f"\x1b[{_COLOURS[line.style]}m{head}\x1b[0m"
    return head + tail
