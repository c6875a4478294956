"""Each record as one self-contained HTML page: no network, no script, light and dark, printable.

The page carries a content security policy that allows its own style sheet, by hash, and nothing
else: whatever a model name or a log line holds, it can neither run nor load anything.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources

from arriero.base.sizes import mib
from arriero.record import (
    Baseline,
    Diagnosis,
    EngineRecord,
    Explanation,
    Explanations,
    ModelRecord,
    Plan,
    Step,
    Verification,
)
from arriero.report import _drawing as draw
from arriero.report import _pictures as pictures
from arriero.report import _plan_pictures as plan_pictures
from arriero.report import _words as say
from arriero.report import view
from arriero.report._markup import Markup, el, join
from arriero.report._plans import Contents, Fix, Reach, left
from arriero.report._text import command
from arriero.report._trials import Size, Table


def diagnosis(doc: Diagnosis) -> str:
    """The whole page as text, to be written as UTF-8."""
    facts = view.diagnosis(doc)
    return _page(
        ("Arriero diagnosis ", el("code", doc.id)),
        facts.setting,
        facts.finding,
        [
            _finding(facts.finding, facts.unfinished),
            *_run(facts.run),
            *_section("Memory", pictures.stacks(facts)),
            *_section("Trials", _trials(facts.table)),
            *_section("Boundaries", [*pictures.edges(facts), *_boundaries(facts)]),
            *_section("Over time", pictures.timelines(facts)),
            *_section("What was sent to the recommended command", _advised_steps(doc)),
            *_section("Not tried", _list(facts.not_tried)),
            *_section("Notes", _list(facts.caveats)),
            *_section("Setting", _baseline(doc.baseline)),
            *_section("Logs, last lines", _tails(doc)),
        ],
        f"{facts.effort} · record {doc.id} · {doc.baseline.taken_at}",
    )


def plan(doc: Plan) -> str:
    """What a command will take: pictures of the pools and of the frontier, every line, changes."""
    facts = view.plan(doc)
    return _page(
        ("Arriero plan ", el("code", doc.id)),
        facts.setting,
        facts.finding,
        [
            _finding(facts.finding, facts.unfinished),
            *_list(facts.context),
            *_commands(facts),
            *_section("Memory", [*plan_pictures.bars(facts), *_shares(facts.pools)]),
            *_section(
                "Largest context", [*plan_pictures.frontier(facts), *_frontier(facts.reaches)]
            ),
            *_section(
                "Changes, cheapest first",
                [*_fixes(facts.fixes), *_list([facts.enough] if facts.enough else [])],
            ),
            *_section("Also worth changing", _fixes(facts.beside)),
            *_section("Notes", _list(facts.notes)),
            *_section("Setting", _planned(doc)),
        ],
        f"record {doc.id}" if doc.id else "",
    )


def explanation(doc: Explanation | Explanations) -> str:
    """What one log says, or several logs one after the other."""
    several = doc.explanations if isinstance(doc, Explanations) else (doc,)
    logs = [view.explanation(one) for one in several]
    first = logs[0].finding
    body = [part for facts in logs for part in _log(facts)]
    return _page(("Arriero explanation",), (), first, body, "")


def verification(doc: Verification) -> str:
    """A load on a server, step by step."""
    facts = view.verification(doc)
    return _page(
        ("Arriero verification ", el("code", doc.id)),
        facts.setting,
        facts.finding,
        [
            _finding(facts.finding),
            *_list(facts.facts),
            *_section("Steps", _steps(facts.steps)),
            *_section("Skipped", _list(facts.skipped)),
            *_section("Notes", _list(facts.notes)),
            *_section("Setting", _baseline(doc.baseline) if doc.baseline else []),
        ],
        f"{facts.effort} · record {doc.id}",
    )


def _page(
    kicker: Sequence[str],
    setting: Sequence[str],
    finding: view.Finding,
    sections: Sequence[Markup],
    footer: str,
) -> str:
    title = f"{finding.word}: {finding.sentence}"
    body = join(
        el(
            "header",
            el("p", *kicker, class_="kicker"),
            *([el("p", " · ".join(setting), class_="setting")] if setting else []),
        ),
        el("main", *sections),
        el("footer", el("p", " · ".join(filter(None, (footer, "Arriero")))), el("p", say.LEFT_OUT)),
        draw.patterns(),
    )
    style = resources.files(__package__).joinpath("page.css").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=policy),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="referrer", content="no-referrer"),
        el("meta", name="color-scheme", content="light dark"),
        el("title", f"{title} – Arriero"),
        el("style", Markup(style)),
    )
    return f"<!doctype html>\n{el('html', head, el('body', body), lang='en')}\n"


def _section(title: str, parts: Sequence[Markup]) -> list[Markup]:
    return [el("section", el("h2", title), *parts)] if parts else []


def _finding(finding: view.Finding, unfinished: str = "") -> Markup:
    sign = {view.Tone.GOOD: "✓", view.Tone.BAD: "✕", view.Tone.OPEN: "?"}[finding.tone]
    return el(
        "section",
        *([el("p", unfinished, class_="unfinished")] if unfinished else []),
        el(
            "h1",
            el("span", f"{sign} {finding.word}", class_="word"),
            f" {finding.sentence}",
        ),
        *([el("p", finding.sizes, class_="sizes")] if finding.sizes else []),
        *([el("pre", finding.quote)] if finding.quote else []),
        *([el("p", " ".join(finding.details))] if finding.details else []),
        class_=f"verdict verdict-{finding.tone.value}",
    )


def _run(run: view.Run | None) -> list[Markup]:
    if run is None:
        return []
    return [
        el(
            "section",
            el("h2", run.title.capitalize()),
            el("p", run.about),
            _shell(run.argv, run.env),
            *_list(run.facts),
            class_="run",
        )
    ]


def _shell(argv: Sequence[str], env: Mapping[str, str]) -> Markup:
    return el("pre", el("code", "\n".join(command(argv, env, width=78))), class_="command")


def _trials(table: Table) -> list[Markup]:
    if not table.rows:
        return []
    sizes = [say.SHORT[part] for part in table.components]
    before = ["trial", *table.axes, "change", "ready", "served", "first failure"]
    rows = [
        (
            str(row.n),
            *row.axes,
            row.change,
            row.ready,
            row.served,
            row.remark,
            *map(_size, row.sizes),
            "–" if row.trial.headroom is None else mib(row.trial.headroom),
            row.trial.purpose,
        )
        for row in table.rows
    ]
    numbers = range(len(before), len(before) + len(sizes) + 1)
    right = {*range(1 + len(table.axes)), *numbers}
    legend = f"Sizes in {table.unit}. –: not printed or not reached."
    return [
        _table("Every trial", [*before, *sizes, "headroom", "purpose"], rows, right),
        el("p", legend, class_="values"),
    ]


def _size(size: Size) -> str | Markup:
    if size.bytes is None:
        return "–"
    return el("b", f"{mib(size.bytes)} refused") if size.refused else mib(size.bytes)


def _table(
    name: str, heads: Sequence[str], rows: Iterable[Sequence[str]], right: set[int]
) -> Markup:
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


def _boundaries(facts: view.DiagnosisView) -> list[Markup]:
    items = [
        el(
            "li",
            el("code", edge.flag),
            f" {edge.sentence}",
            *_list([text for text in (edge.held, *edge.doubts, *edge.conditions) if text]),
        )
        for edge in facts.edges
    ]
    items += [el("li", slope) for slope in facts.slopes]
    return [el("ul", *items)] if items else []


def _advised_steps(doc: Diagnosis) -> list[Markup]:
    return _steps(doc.recommendation.steps) if doc.recommendation else []


def _steps(steps: Sequence[Step]) -> list[Markup]:
    rows = [
        (step.name, f"{step.ok}/{step.sent}", step.shown_by or "nothing showed it", step.detail)
        for step in steps
    ]
    heads = ("step", "ok", "shown by", "detail")
    return [_table("Steps of the load", heads, rows, {1})] if rows else []


# --- logs --------------------------------------------------------------------------------------


def _log(facts: view.ExplanationView) -> Iterable[Markup]:
    yield el("p", " · ".join(facts.setting), class_="setting")
    yield _finding(facts.finding)
    rows = [
        (
            say.SHORT[buffer.component],
            mib(buffer.bytes),
            buffer.device,
            buffer.role.value,
            str(buffer.line),
        )
        for buffer in facts.buffers
    ]
    if rows:
        heads = ("allocated", "MiB", "on", "of", "log line")
        yield _table("Buffers that were allocated", heads, rows, {1, 4})
    yield from _section("Known as", _list(facts.known))
    yield from _section("What to do", _list(facts.advice))
    yield from _section("Noticed", _list(facts.notices))
    for child in facts.children:
        yield from _log(child)


# --- plans -------------------------------------------------------------------------------------


def _commands(facts: view.PlanView) -> list[Markup]:
    parts: list[Markup] = []
    if facts.copy:
        parts += [el("h2", "Copy"), el("p", "The recommended change."), _shell(facts.copy, {})]
    if facts.prove:
        proof = ("arriero", "verify", "--", *facts.prove)
        parts += [el("h2", "Prove"), el("p", "By a start under load."), _shell(proof, {})]
    return [el("section", *parts, class_="run")] if parts else []


def _shares(pools: Sequence[Contents]) -> list[Markup]:
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
    return [_table("Every line of the plan", heads, rows, {3})] if rows else []


def _frontier(reaches: Sequence[Reach]) -> list[Markup]:
    heads = ("slots", "tokens in all", "of one slot", "limited by", "room there", "as given")
    rows = [(r.slots, r.tokens, r.each, r.limited_by, r.room, r.now) for r in reaches]
    table = _table("Largest context for each number of slots", heads, rows, {0, 1, 2, 4})
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
    return [_table("Changes", heads, rows, {2, 4})] if rows else []


def _planned(doc: Plan) -> list[Markup]:
    rows = [*_model(doc.model), *(_engine(doc.engine) if doc.engine else [])]
    given = [el("p", "The command as given:"), _shell(doc.argv, {})] if doc.argv else []
    return [_table("Setting", ("what", "value"), rows, set()), *given]


# --- setting -----------------------------------------------------------------------------------


def _list(texts: Sequence[str]) -> list[Markup]:
    return [el("ul", *(el("li", text) for text in texts))] if texts else []


def _baseline(baseline: Baseline) -> list[Markup]:
    rows = [
        *_engine(baseline.engine),
        ("system", baseline.system),
        *(_model(baseline.model) if baseline.model else []),
    ]
    for device in baseline.devices:
        total, free = (_known(device.total), _known(device.free))
        rows.append((f"device {device.name}", f"{device.description}, {total}, {free} free"))
    for pool in baseline.pools:
        note = "" if pool.usable else f"; not used: {pool.note}"
        text = f"{_known(pool.total)}, limited by {pool.limited_by}{note}"
        rows.append((f"pool {pool.name}", text))
    rows += [(name, value or "(empty)") for name, value in baseline.visibility.items()]
    return [
        _table("Setting", ("what", "value"), rows, set()),
        el("p", "The command as given:"),
        _shell(baseline.argv, {}),
    ]


def _engine(engine: EngineRecord) -> list[tuple[str, str]]:
    return [
        ("engine", f"{engine.path} (found by {engine.found_by})"),
        ("version", f"{engine.version or 'unknown'}; {say.engine(engine)}"),
    ]


def _model(model: ModelRecord) -> list[tuple[str, str]]:
    text = f"{model.path} ({model.arch or 'unknown'}, {model.memory_class} memory, "
    return [("model", f"{text}{_known(model.file_bytes)})")]


def _known(size: int | None) -> str:
    return "size unknown" if size is None else say.size(size)


def _tails(doc: Diagnosis) -> list[Markup]:
    return [
        join(el("h3", f"Trial {trial.n}"), el("pre", "\n".join(trial.log_tail)))
        for trial in doc.trials
        if trial.log_tail
    ]
