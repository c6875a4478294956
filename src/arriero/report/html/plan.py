"""A plan as a page."""

from __future__ import annotations

from collections.abc import Sequence

from arriero.record import Plan
from arriero.report.html.markup import Markup, el
from arriero.report.html.page import html_page
from arriero.report.html.parts import bullets, grid, section, shell, verdict_section
from arriero.report.html.pictures.frontier import frontier
from arriero.report.html.pictures.pools import pools
from arriero.report.html.setting import engine_rows, model_rows
from arriero.report.view.changes import Fix, Reach
from arriero.report.view.plan import PlanView, plan_view
from arriero.report.view.pools import PoolView
from arriero.report.view.words import left


def page(doc: Plan) -> str:
    """What a command will take: pictures of the pools and of the frontier, every line, changes."""
    facts = plan_view(doc)
    return html_page(
        ("Arriero plan ", el("code", doc.id)),
        facts.setting,
        facts.verdict,
        [
            verdict_section(facts.verdict, facts.unfinished),
            *bullets(facts.context),
            *_commands(facts),
            *section("Memory", [*pools(facts), *_shares(facts.pools)]),
            *section("Largest context", [*frontier(facts), *_frontier(facts.reaches)]),
            *section(
                "Changes, cheapest first",
                [*_fixes(facts.fixes), *bullets([facts.enough] if facts.enough else [])],
            ),
            *section("Also worth changing", _fixes(facts.beside)),
            *section("Notes", bullets(facts.notes)),
            *section("Setting", _planned(doc)),
        ],
        f"record {doc.id}" if doc.id else "",
    )


def _commands(facts: PlanView) -> list[Markup]:
    parts: list[Markup] = []
    if facts.copy:
        parts += [el("h2", "Copy"), el("p", "The recommended change."), shell(facts.copy, {})]
    if facts.prove:
        proof = ("arriero", "verify", "--", *facts.prove)
        parts += [el("h2", "Prove"), el("p", "By a start under load."), shell(proof, {})]
    return [el("section", *parts, class_="run")] if parts else []


def _shares(pools: Sequence[PoolView]) -> list[Markup]:
    rows = [
        (
            share.name,
            one.title,
            share.buffer.device,
            share.size,
            share.method,
            "; ".join(filter(None, (share.detail, share.remark))),
        )
        for one in pools
        for share in one.shares
    ]
    heads = ("what", "pool", "on", "MiB", "method", "about")
    return [grid("Every line of the plan", heads, rows, {3})] if rows else []


def _frontier(reaches: Sequence[Reach]) -> list[Markup]:
    heads = ("slots", "tokens in all", "of one slot", "limited by", "room there", "as given")
    rows = [(r.slots, r.tokens, r.each, r.limited_by, r.room, r.now) for r in reaches]
    table = grid("Largest context for each number of slots", heads, rows, {0, 1, 2, 4})
    return [table] if rows else []


def _fixes(fixes: Sequence[Fix]) -> list[Markup]:
    rows = [
        (
            fix.change,
            el("b", "recommended") if fix.advice.recommended else "",
            "?" if fix.headroom is None else left(fix.headroom),
            fix.pool,
            left(fix.advice.saves),
            fix.costs,
        )
        for fix in fixes
    ]
    heads = ("change", "", "left", "in", "saves", "costs")
    return [grid("Changes", heads, rows, {2, 4})] if rows else []


def _planned(doc: Plan) -> list[Markup]:
    rows = [*model_rows(doc.model), *(engine_rows(doc.engine) if doc.engine else [])]
    given = [el("p", "The command as given:"), shell(doc.argv, {})] if doc.argv else []
    return [grid("Setting", ("what", "value"), rows, set()), *given]
