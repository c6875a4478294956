"""A diagnosis for a terminal at 2 a.m.: verdict, command, one table, boundaries, the rest.

It takes at most :data:`LINES` lines. Where that is not enough, the least telling parts go first and
the reader is told; the verdict and the command are never shortened.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from arriero.record import Diagnosis, was_kept
from arriero.report.terminal.lines import (
    NARROW,
    Block,
    Line,
    bullet,
    paragraph,
    verdict_blocks,
    wrapped,
)
from arriero.report.terminal.trials import trial_blocks
from arriero.report.view.diagnosis import CommandView, DiagnosisView, diagnosis_view
from arriero.report.view.text import cells, command, pad, wrap
from arriero.report.view.verdict import Tone

LINES: Final = 40


def lines(doc: Diagnosis, width: int) -> list[Line]:
    """The whole diagnosis, as much of it as has room."""
    facts = diagnosis_view(doc)
    # Laid out as if something had to go, which makes the longest footer, then as it turned out.
    chosen, gone, rows_gone = _chosen(_blocks(facts, width, cut_short=True, rows_gone=99))
    if gone or rows_gone:
        return _picked(_blocks(facts, width, cut_short=gone, rows_gone=rows_gone), chosen)
    return _picked(_blocks(facts, width, cut_short=False, rows_gone=0), chosen)


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


def _blocks(facts: DiagnosisView, width: int, *, cut_short: bool, rows_gone: int) -> list[Block]:
    doc = facts.doc
    more = "more" if cut_short else "record"
    where = f"{more} and issue text: arriero report {doc.id}"
    footer = f"{facts.effort} · {where}" if was_kept(doc.notes) else facts.effort
    return [
        Block(0, wrapped(" · ".join(facts.setting), width, style="dim")),
        Block(0, [Line("")]),
        *(
            [Block(0, [*wrapped(facts.unfinished, width, style="open"), Line("")])]
            * bool(facts.unfinished)
        ),
        *verdict_blocks(facts.verdict, width),
        *_recommended(facts.recommended, width),
        *trial_blocks(facts.table, width, rows_gone),
        *_edges(facts, width),
        Block(6, [Line("")]),
        Block(4, paragraph("NOT TRIED", "; ".join(facts.not_tried), width)),
        *(Block(5, paragraph("NOTE", caveat, width)) for caveat in facts.caveats),
        Block(0, wrapped(footer, width, style="dim")),
    ]


def _recommended(best: CommandView | None, width: int) -> list[Block]:
    if best is None:
        return []
    style = Tone.GOOD if best.verified else Tone.OPEN
    first, *more = wrap(best.about, width, first=best.title + "  ", rest="    ")
    shown = command(best.argv, best.env, width=width, indent="  ")
    return [
        Block(0, [Line("")]),
        Block(0, [Line(first, style.value, len(best.title)), *map(Line, more)]),
        Block(0, [Line(line, "head", exact=True) for line in shown]),
        *(Block(min(4 * index, 4), bullet(fact, width)) for index, fact in enumerate(best.facts)),
    ]


def _edges(facts: DiagnosisView, width: int) -> list[Block]:
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
