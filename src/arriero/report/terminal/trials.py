"""The table of trials in the columns of a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from arriero.base.sizes import MIB, mib
from arriero.report.terminal.lines import NARROW, Block, Line, gap, grid, natural
from arriero.report.view.text import cells, wrap
from arriero.report.view.trials import Row, Size, Table
from arriero.report.view.words import SHORT, count


def _remark(width: int) -> int:
    """Cells that the first failure gets before sizes get any."""
    return 14 if width < NARROW else 18


def trial_blocks(table: Table, width: int, rows_gone: int) -> list[Block]:
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
