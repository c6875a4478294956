"""Records as GitHub-flavoured Markdown: complete, and safe to paste on GitHub."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from arriero.base.sizes import mib
from arriero.base.words import Component
from arriero.record import (
    Baseline,
    Diagnosis,
    EngineRecord,
    Explanation,
    Explanations,
    Plan,
    Step,
    Verification,
)
from arriero.report import _words as say
from arriero.report import view
from arriero.report._plans import Contents, Reach, left
from arriero.report._text import command, printable
from arriero.report._trials import Size, Table

_SPECIAL = re.compile(r"([\\`*_\[\]<>|~#&$])")
_TICKS = re.compile(r"`+")
_BAR = re.compile(r"(?<!\\)\|")
_ESCAPED = r"\\|"


# --- documents ---------------------------------------------------------------------------------


def diagnosis(doc: Diagnosis) -> str:
    """Everything a diagnosis holds except the samples, all trials included."""
    facts = view.diagnosis(doc)
    return _joined(
        [
            f"## Arriero diagnosis {prose(doc.id)}",
            prose(" · ".join(facts.setting)),
            *([f"**{prose(facts.unfinished)}**"] if facts.unfinished else []),
            *_finding(facts.finding),
            *run(facts.run),
            *trials(facts.table),
            *boundaries(facts),
            *bullets("Not tried", facts.not_tried),
            *bullets("Notes", facts.caveats),
            *_buffers(doc),
            *_steps(facts),
            *_baseline(doc.baseline),
            *_tails(doc),
            prose(f"{facts.effort}; record {doc.id}, taken {doc.baseline.taken_at}"),
        ]
    )


def explanation(doc: Explanation | Explanations) -> str:
    """What one log says, or several."""
    several = doc.explanations if isinstance(doc, Explanations) else (doc,)
    return _joined(part for one in several for part in _log(view.explanation(one), "##"))


def _log(facts: view.ExplanationView, level: str) -> Iterable[str]:
    yield f"{level} {prose(' · '.join(facts.setting))}"
    yield from _finding(facts.finding)
    if facts.buffers:
        rows = [
            (
                say.SHORT[buffer.component],
                mib(buffer.bytes),
                code(printable(buffer.device)),
                buffer.role.value,
                str(buffer.line),
            )
            for buffer in facts.buffers
        ]
        yield grid(("allocated", "MiB", "on", "of", "log line"), rows, right={1, 4})
    yield from bullets("Known as", facts.known)
    yield from bullets("What to do", facts.advice)
    yield from bullets("", facts.notices)
    for child in facts.children:
        yield from _log(child, level + "#")


def verification(doc: Verification) -> str:
    """A load on a server, step by step."""
    facts = view.verification(doc)
    return _joined(
        [
            f"## Arriero verification {prose(doc.id)}",
            prose(" · ".join(facts.setting)),
            *_finding(facts.finding),
            *bullets("", facts.facts),
            *step_table(facts.steps),
            *bullets("Skipped", facts.skipped),
            *bullets("Notes", facts.notes),
            *(_baseline(doc.baseline) if doc.baseline else []),
            prose(f"{facts.effort}; record {doc.id}"),
        ]
    )


def plan(doc: Plan) -> str:
    """What a command will take, pool by pool, and what to change."""
    facts = view.plan(doc)
    return _joined(
        [
            f"## Arriero plan {prose(doc.id)}".rstrip(),
            prose(" · ".join(facts.setting)),
            *([f"**{prose(facts.unfinished)}**"] if facts.unfinished else []),
            *_finding(facts.finding),
            *bullets("", facts.context),
            *(part for one in facts.pools for part in _pool(one)),
            *_frontier(facts.reaches),
            *_fixes(facts),
            *bullets("Notes", facts.notes),
            *_planned(doc),
            prose(f"record {doc.id}") if doc.id else "",
        ]
    )


def _pool(one: Contents) -> Iterable[str]:
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


def _fixes(facts: view.PlanView) -> Iterable[str]:
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
        lines += _engine(doc.engine)
    return [
        "### Setting",
        "\n".join(lines),
        *(["Command as given:", shell(doc.argv, {})] if doc.argv else []),
    ]


# --- parts, shared with the upstream report ----------------------------------------------------


def run(facts: view.Run | None) -> list[str]:
    """The command to run, in a block that pastes."""
    if facts is None:
        return []
    return [
        f"### {prose(facts.title.capitalize())}",
        prose(facts.about),
        shell(facts.argv, facts.env),
        *bullets("", facts.facts),
    ]


def trials(table: Table) -> list[str]:
    """Every trial, with a legend."""
    if not table.rows:
        return []
    heads = ["trial", "purpose", *map(code, table.axes), "change"]
    first = len(heads)
    heads += [f"{say.SHORT[part]}" for part in table.components]
    sizes = range(first, len(heads))
    heads += ["headroom", "ready", "served", "first failure"]
    rows = [
        (
            str(row.n),
            prose(printable(row.trial.purpose)),
            *map(prose, row.axes),
            code(row.change) if row.change.startswith("-") else prose(row.change),
            *map(_size, row.sizes),
            "–" if row.trial.headroom is None else mib(row.trial.headroom, 1),
            row.ready,
            row.served,
            prose(row.remark),
        )
        for row in table.rows
    ]
    legend = f"Sizes in {prose(table.unit)}. **bold**: refused. –: not printed or not reached."
    return ["### Trials", grid(heads, rows, right={0, *sizes, sizes.stop}), legend]


def boundaries(facts: view.DiagnosisView) -> list[str]:
    """Where each variable stops working, and what each unit of it takes."""
    lines = []
    for edge in facts.edges:
        lines.append(f"- {code(edge.flag)}: {prose(edge.sentence)}")
        about = (edge.held, *edge.doubts, *edge.conditions)
        lines += [f"  - {prose(text)}" for text in about if text]
    lines += [f"- {prose(slope)}" for slope in facts.slopes]
    return ["### Boundaries" if facts.edges else "### Slopes", "\n".join(lines)] if lines else []


def bullets(title: str, texts: Sequence[str]) -> list[str]:
    if not texts:
        return []
    return [*([f"### {title}"] if title else []), "\n".join(f"- {prose(text)}" for text in texts)]


def step_table(steps: Sequence[Step]) -> list[str]:
    rows = [
        (
            prose(printable(step.name)),
            f"{step.ok}/{step.sent}",
            code(printable(step.shown_by)) if step.shown_by else "nothing showed it",
            prose(printable(step.detail)),
        )
        for step in steps
    ]
    return [grid(("step", "ok", "shown by", "detail"), rows, right={1})] if rows else []


def _finding(finding: view.Finding) -> list[str]:
    parts = [f"**{prose(finding.word)}**: {prose(finding.sentence)}"]
    parts += [prose(finding.sizes)] if finding.sizes else []
    parts += [fence([finding.quote])] if finding.quote else []
    parts += [prose(" ".join(finding.details))] if finding.details else []
    return parts


def _size(size: Size) -> str:
    if size.bytes is None:
        return "–"
    return f"**{mib(size.bytes)}**" if size.refused else mib(size.bytes)


def _buffers(doc: Diagnosis) -> list[str]:
    """Every buffer of every trial, kept apart by device and model."""
    keys = dict.fromkeys(
        (buffer.component, buffer.device, buffer.role.value)
        for trial in doc.trials
        for buffer in trial.buffers
    )
    columns = sorted(keys, key=lambda key: (list(Component).index(key[0]), key[1], key[2]))
    if not columns:
        return []
    heads = ["trial"] + [
        f"{say.SHORT[part]}, {code(printable(device))}" + ("" if role == "main" else f", {role}")
        for part, device, role in columns
    ]
    rows = []
    for trial in doc.trials:
        sizes = [
            [b.bytes for b in trial.buffers if (b.component, b.device, b.role.value) == key]
            for key in columns
        ]
        rows.append([str(trial.n), *(mib(sum(size)) if size else "–" for size in sizes)])
    table = grid(heads, rows, right=set(range(len(heads))))
    return ["### Buffers that were allocated (MiB, as the engine printed them)", table]


def _steps(facts: view.DiagnosisView) -> list[str]:
    advice = facts.doc.recommendation
    if advice is None or not advice.steps:
        return []
    return ["### What was sent to the recommended command", *step_table(advice.steps)]


def _baseline(baseline: Baseline) -> list[str]:
    model, engine = baseline.model, baseline.engine
    lines = [*_engine(engine), f"- System: {prose(printable(baseline.system))}"]
    if model is not None:
        size = "size unknown" if model.file_bytes is None else say.size(model.file_bytes)
        lines.append(
            f"- Model: {code(printable(model.path))} ({prose(printable(model.arch or 'unknown'))}, "
            f"{model.memory_class} memory, {size})"
        )
    for device in baseline.devices:
        total = "unknown" if device.total is None else say.size(device.total)
        free = "unknown" if device.free is None else say.size(device.free)
        lines.append(
            f"- Device {code(printable(device.name))}: {prose(printable(device.description))}, "
            f"{total}, {free} free"
        )
    for pool in baseline.pools:
        total = "unknown" if pool.total is None else say.size(pool.total)
        note = "" if pool.usable else f"; not used: {printable(pool.note)}"
        lines.append(
            f"- Pool {code(printable(pool.name))}: {total}, limited by "
            f"{prose(printable(pool.limited_by) + note)}"
        )
    for name, value in baseline.visibility.items():
        lines.append(f"- {code(printable(f'{name}={value}'))}")
    return ["### Setting", "\n".join(lines), "Command as given:", shell(baseline.argv, {})]


def _engine(engine: EngineRecord) -> list[str]:
    return [
        f"- Engine: {code(printable(engine.path))} (found by {prose(printable(engine.found_by))})",
        f"- Version: {code(printable(engine.version or 'unknown'))}; {prose(say.engine(engine))}",
    ]


def _tails(doc: Diagnosis) -> list[str]:
    return [
        f"<details><summary>Log of trial {trial.n}, last lines</summary>\n\n"
        f"{fence(map(printable, trial.log_tail))}\n\n</details>"
        for trial in doc.trials
        if trial.log_tail
    ]


# --- syntax ------------------------------------------------------------------------------------


def prose(text: str) -> str:
    """Text that renders as itself: no markup, no mention, no reference to an issue."""
    return _SPECIAL.sub(r"\\\1", text).replace("@", "@<!-- -->")


def code(text: str) -> str:
    """A code span, whatever backticks it holds."""
    if not text:
        return ""
    longest = max(map(len, _TICKS.findall(text)), default=0)
    ticks = "`" * (longest + 1)
    room = " " if longest or text[0] == " " or text[-1] == " " else ""
    return f"{ticks}{room}{text}{room}{ticks}"


def fence(lines: Iterable[str], language: str = "") -> str:
    text = "\n".join(lines)
    longest = max(map(len, _TICKS.findall(text)), default=0)
    ticks = "`" * max(3, longest + 1)
    return f"{ticks}{language}\n{text}\n{ticks}"


def shell(argv: Sequence[str], env: Mapping[str, str]) -> str:
    """A command in a block that pastes into a shell."""
    return fence(command(argv, env, width=100), "sh")


def grid(heads: Sequence[str], rows: Sequence[Sequence[str]], *, right: set[int]) -> str:
    """A table; cells are Markdown already, with bars inside code spans still to be escaped."""
    rule = ["--:" if index in right else "---" for index in range(len(heads))]
    lines = (" | ".join(_BAR.sub(_ESCAPED, cell) for cell in row) for row in (heads, rule, *rows))
    return "\n".join(f"| {line} |" for line in lines)


def _joined(parts: Iterable[str]) -> str:
    return "\n\n".join([*filter(None, parts), prose(say.LEFT_OUT)]) + "\n"
