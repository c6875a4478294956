"""A plan as lines for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from arriero.base.sizes import MIB, mib
from arriero.record import Plan, was_kept
from arriero.report.terminal.lines import (
    NARROW,
    Line,
    gap,
    grid,
    natural,
    paragraph,
    titled,
    verdict_blocks,
    wrapped,
)
from arriero.report.view.changes import Fix, Reach
from arriero.report.view.plan import PlanView, plan_view
from arriero.report.view.pools import PoolView, Share
from arriero.report.view.text import cells, command, pad, wrap
from arriero.report.view.verdict import Tone
from arriero.report.view.words import left


def lines(doc: Plan, width: int) -> list[Line]:
    """Verdict, pools, changes, the command to copy and to prove."""
    facts = plan_view(doc)
    used = [one for one in facts.pools if one.shares or one.fits is False]
    idle = [one for one in facts.pools if one not in used]
    shared = doc.id and was_kept([note.text for note in doc.notes])
    notes = [line for note in facts.notes for line in paragraph("NOTE", note, width)]
    return [
        *wrapped(" · ".join(facts.setting), width, style="dim"),
        Line(""),
        *(wrapped(facts.unfinished, width, style="open") if facts.unfinished else []),
        *(line for block in verdict_blocks(facts.verdict, width) for line in block.lines),
        *(line for fact in facts.context for line in wrapped(fact, width)),
        *_shares(used, width),
        *([Line("")] * bool(idle)),
        *(line for one in idle for line in titled(one.title, f"{one.about}; unused", width)),
        *_frontier(facts.reaches, width),
        *([Line("")] * bool(notes)),
        *notes,
        *_fixes(facts.fixes, facts.enough, width),
        *_beside(facts.beside, width),
        *_commands(facts, width),
        *(wrapped(f"to share it: arriero report {doc.id}", width, style="dim") if shared else []),
    ]


def _label(share: Share) -> str:
    return "  ".join(filter(None, (share.name, *share.about)))


def _shares(pools: Sequence[PoolView], width: int) -> list[Line]:
    """Each pool, a line for each share of it, and what that leaves."""
    shares = [share for one in pools for share in one.shares]
    if not shares:
        return []
    narrow = width < NARROW
    number = max(cells(_planned_size(share, narrow)) for share in shares)
    room = min(width - number - (16 if narrow else 26), max(cells(_label(s)) for s in shares))
    column = max(room, max(cells(share.name) for share in shares))
    lines: list[Line] = []
    for one in pools:
        lines += [Line(""), *titled(one.title, one.about, width)]
        for share in one.shares:
            whole = cells(_label(share)) <= column
            label, about = (_label(share), ()) if whole else (share.name, share.about)
            remark = "; ".join(filter(None, (share.method, ", ".join(about), share.remark)))
            size = pad(_planned_size(share, narrow), number, right=True)
            start = f"  {pad(label, column)}  {size}  "
            rest = "      " if narrow else " " * cells(start)
            lines += map(Line, wrap(remark, width, first=start, rest=rest))
        if one.fits and len(pools) == 1:  # the verdict has said it
            continue
        tone = {True: Tone.GOOD, False: Tone.BAD, None: Tone.OPEN}[one.fits]
        verdict_blocks = wrap(one.verdict, width, first="  → ", rest="    ")
        lines += [Line(line, tone.value) for line in verdict_blocks]
        if one.knob and not one.fits:
            lines += map(Line, wrap(one.knob, width, first="    "))
    return lines


def _planned_size(share: Share, narrow: bool) -> str:
    size = share.buffer.bytes
    if size is None:
        return "?"
    return f"{share.bound} {mib(size, 0 if narrow and size >= MIB else 1)}".lstrip()


def _frontier(reaches: Sequence[Reach], width: int) -> list[Line]:
    if not reaches:
        return []
    narrow = width < NARROW
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
    return [Line(""), title, *grid(heads, rows, width, right={0, 1, 2}, last=20)]


def _fixes(fixes: Sequence[Fix], enough: str, width: int) -> list[Line]:
    """Changes, cheapest first, the recommended one marked."""
    if not fixes:
        return []
    pools = {fix.pool for fix in fixes}
    where = fixes[0].pool if len(pools) == 1 else ""
    rows = []
    for fix in fixes:
        room = "?" if fix.headroom is None else _signed(fix.headroom)
        if len(pools) > 1 and fix.pool:
            room = f"{fix.pool} {room}"
        mark = "→" if fix.advice.recommended else ""
        rows.append((mark, fix.change, room, fix.costs))
    heads = ("", "FIX, cheapest first", f"{where} left".lstrip(), "costs")
    columns = natural(heads, rows)
    if sum(columns) + 3 * gap(width) <= width:
        lines = grid(heads, rows, width, right={2}, last=columns[-1])
    else:
        lines = [Line("FIX, cheapest first", "head")]
        for mark, change, room, costs in rows:
            text = f"{change}: leaves {room} MiB{f' on {where}' if where else ''}; costs {costs}"
            lines += map(Line, wrap(text, width, first=f"{mark or ' '} ", rest="    "))
    return [Line(""), *lines, *(wrapped(enough, width) if enough else [])]


def _beside(fixes: Sequence[Fix], width: int) -> list[Line]:
    texts = [
        f"{fix.change}: up to {left(fix.advice.saves)} less on {fix.pool}; costs {fix.costs}"
        for fix in fixes
    ]
    return [Line("")] * bool(texts) + paragraph("ALSO", "; ".join(texts), width)


def _signed(size: int) -> str:
    return left(size).removesuffix(" MiB").replace("-", "−")


def _commands(facts: PlanView, width: int) -> list[Line]:
    lines: list[Line] = []
    if facts.copy:
        shown = command(facts.copy, {}, width=width, indent="  ")
        lines += [Line(""), *paragraph("COPY", "the recommended change (→):", width)]
        lines += [Line(line, "head", exact=True) for line in shown]
    if facts.prove and facts.prove == facts.copy:
        lines += paragraph("PROVE", "arriero verify -- <that>", width)
    elif facts.prove:
        shown = command(("arriero", "verify", "--", *facts.prove), {}, width=width, indent="  ")
        lines += [Line(""), Line("PROVE", "head")]
        lines += [Line(line, exact=True) for line in shown]
    return lines
