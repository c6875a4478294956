"""A diagnosis as Markdown."""

from __future__ import annotations

from arriero.base.sizes import mib
from arriero.base.words import Component
from arriero.record import Diagnosis
from arriero.report.markdown.parts import (
    boundaries,
    bullets,
    recommended,
    step_table,
    trials,
    verdict_parts,
)
from arriero.report.markdown.setting import setting
from arriero.report.markdown.syntax import code, fence, grid, prose
from arriero.report.view import words as say
from arriero.report.view.diagnosis import DiagnosisView, diagnosis_view
from arriero.report.view.text import printable


def parts(doc: Diagnosis) -> list[str]:
    """Everything a diagnosis holds except the samples, all trials included."""
    facts = diagnosis_view(doc)
    return [
        f"## Arriero diagnosis {prose(doc.id)}",
        prose(" · ".join(facts.setting)),
        *([f"**{prose(facts.unfinished)}**"] if facts.unfinished else []),
        *verdict_parts(facts.verdict),
        *recommended(facts.recommended),
        *trials(facts.table),
        *boundaries(facts),
        *bullets("Not tried", facts.not_tried),
        *bullets("Notes", facts.caveats),
        *_buffers(doc),
        *_steps(facts),
        *setting(doc.baseline),
        *_tails(doc),
        prose(f"{facts.effort}; record {doc.id}, taken {doc.baseline.taken_at}"),
    ]


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


def _steps(facts: DiagnosisView) -> list[str]:
    advice = facts.doc.recommendation
    if advice is None or not advice.steps:
        return []
    return ["### What was sent to the recommended command", *step_table(advice.steps)]


def _tails(doc: Diagnosis) -> list[str]:
    return [
        f"<details><summary>Log of trial {trial.n}, last lines</summary>\n\n"
        f"{fence(map(printable, trial.log_tail))}\n\n</details>"
        for trial in doc.trials
        if trial.log_tail
    ]
