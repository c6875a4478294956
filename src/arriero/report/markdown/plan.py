"""A plan as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from arriero.record import Plan
from arriero.report.markdown.parts import bullets, verdict_parts
from arriero.report.markdown.setting import engine_lines
from arriero.report.markdown.syntax import code, grid, prose, shell
from arriero.report.view.changes import Reach
from arriero.report.view.plan import PlanView, plan_view
from arriero.report.view.pools import PoolView
from arriero.report.view.text import printable
from arriero.report.view.words import left


def parts(doc: Plan) -> list[str]:
    """What a command will take, pool by pool, and what to change."""
    facts = plan_view(doc)
    return [
        f"## Arriero plan {prose(doc.id)}".rstrip(),
        prose(" · ".join(facts.setting)),
        *([f"**{prose(facts.unfinished)}**"] if facts.unfinished else []),
        *verdict_parts(facts.verdict),
        *bullets("", facts.context),
        *(part for one in facts.pools for part in _pool(one)),
        *_frontier(facts.reaches),
        *_fixes(facts),
        *bullets("Notes", facts.notes),
        *_planned(doc),
        prose(f"record {doc.id}") if doc.id else "",
    ]


def _pool(one: PoolView) -> Iterable[str]:
    yield f"### {prose(one.title)}" + (f": {prose(one.about)}" if one.about else "")
    rows = [
        (
            share.name,
            code(printable(share.buffer.device)),
            share.size,
            share.method,
            prose("; ".join(filter(None, (share.detail, share.remark)))),
        )
        for share in one.shares
    ]
    if rows:
        yield grid(("what", "on", "MiB", "method", "about"), rows, right={2})
    yield prose(f"→ {one.verdict}" + (f"; {one.knob}" if one.knob else ""))


def _frontier(reaches: Sequence[Reach]) -> list[str]:
    if not reaches:
        return []
    heads = ("slots", "tokens in all", "of one slot", "limited by", "room there", "as given")
    rows = [(r.slots, r.tokens, r.each, prose(r.limited_by), r.room, r.now) for r in reaches]
    return ["### Largest context for each number of slots", grid(heads, rows, right={0, 1, 2, 4})]


def _fixes(facts: PlanView) -> Iterable[str]:
    for title, fixes in (
        ("Changes, cheapest first", facts.fixes),
        ("Also worth changing", facts.beside),
    ):
        if not fixes:
            continue
        heads = ("change", "", "left", "in", "saves", "costs")
        rows = [
            (
                code(fix.change),
                "**recommended**" if fix.advice.recommended else "",
                "?" if fix.headroom is None else left(fix.headroom),
                prose(fix.pool),
                left(fix.advice.saves),
                prose(fix.costs),
            )
            for fix in fixes
        ]
        yield f"### {title}"
        yield grid(heads, rows, right={2, 4})
    if facts.enough:
        yield prose(facts.enough)
    if facts.copy:
        yield "The recommended command:"
        yield shell(facts.copy, {})
    if facts.prove:
        yield "Prove it by a start:"
        yield shell(("arriero", "verify", "--", *facts.prove), {})


def _planned(doc: Plan) -> list[str]:
    lines = [f"- Model: {code(printable(doc.model.path))}"]
    if doc.engine:
        lines += engine_lines(doc.engine)
    return [
        "### Setting",
        "\n".join(lines),
        *(["Command as given:", shell(doc.argv, {})] if doc.argv else []),
    ]
