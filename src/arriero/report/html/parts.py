"""Parts of a page that several documents have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from arriero.record import Step
from arriero.report.html.markup import Markup, el
from arriero.report.view.diagnosis import CommandView
from arriero.report.view.text import command
from arriero.report.view.verdict import Tone, VerdictView


def section(title: str, parts: Sequence[Markup]) -> list[Markup]:
    return [el("section", el("h2", title), *parts)] if parts else []


def verdict_section(verdict: VerdictView, unfinished: str = "") -> Markup:
    sign = {Tone.GOOD: "✓", Tone.BAD: "✕", Tone.OPEN: "?"}[verdict.tone]
    return el(
        "section",
        *([el("p", unfinished, class_="unfinished")] if unfinished else []),
        el(
            "h1",
            el("span", f"{sign} {verdict.word}", class_="word"),
            f" {verdict.sentence}",
        ),
        *([el("p", verdict.sizes, class_="sizes")] if verdict.sizes else []),
        *([el("pre", verdict.quote)] if verdict.quote else []),
        *([el("p", " ".join(verdict.details))] if verdict.details else []),
        class_=f"verdict verdict-{verdict.tone.value}",
    )


def recommended(best: CommandView | None) -> list[Markup]:
    if best is None:
        return []
    return [
        el(
            "section",
            el("h2", best.title.capitalize()),
            el("p", best.about),
            shell(best.argv, best.env),
            *bullets(best.facts),
            class_="run",
        )
    ]


def shell(argv: Sequence[str], env: Mapping[str, str]) -> Markup:
    return el("pre", el("code", "\n".join(command(argv, env, width=78))), class_="command")


def grid(name: str, heads: Sequence[str], rows: Iterable[Sequence[str]], right: set[int]) -> Markup:
    def cell(index: int, text: str) -> Markup:
        kind = "number" if index in right else "short" if len(text) <= 24 else "long"
        return el(
            "th" if index == 0 else "td", text, class_=kind, scope="row" if index == 0 else None
        )

    head = [
        el("th", text, scope="col", class_="number" if index in right else None)
        for index, text in enumerate(heads)
    ]
    body = [el("tr", *(cell(index, text) for index, text in enumerate(row))) for row in rows]
    table = el("table", el("thead", el("tr", *head)), el("tbody", *body))
    # A wide table scrolls inside its own region, which the keyboard can reach.
    return el("div", table, class_="scroll", role="region", aria_label=name, tabindex="0")


def bullets(texts: Sequence[str]) -> list[Markup]:
    return [el("ul", *(el("li", text) for text in texts))] if texts else []


def step_table(steps: Sequence[Step]) -> list[Markup]:
    rows = [
        (step.name, f"{step.ok}/{step.sent}", step.shown_by or "no evidence", step.detail)
        for step in steps
    ]
    heads = ("step", "ok", "shown by", "detail")
    return [grid("Steps of the load", heads, rows, {1})] if rows else []
