"""What logs say, for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from arriero.base.sizes import mib
from arriero.logs.model import Buffer
from arriero.record import Explanation, Explanations
from arriero.report.terminal.lines import (
    Line,
    bullet,
    grid,
    paragraph,
    verdict_blocks,
    wrapped,
)
from arriero.report.view.explanation import ExplanationView, explanation_view
from arriero.report.view.text import printable
from arriero.report.view.words import SHORT

_BUFFERS: Final = 16
"""Buffers of one log that are listed."""


def lines(doc: Explanation | Explanations, width: int) -> list[Line]:
    """What one log says, or several logs one after the other."""
    several = doc.explanations if isinstance(doc, Explanations) else (doc,)
    shown: list[Line] = []
    for one in several:
        shown += [*([Line("")] if shown else []), *_log(explanation_view(one), width)]
    return shown


def _log(facts: ExplanationView, width: int) -> list[Line]:
    lines = [
        *wrapped(" · ".join(facts.setting), width, style="dim"),
        Line(""),
        *(line for block in verdict_blocks(facts.verdict, width) for line in block.lines),
    ]
    if facts.known or facts.advice:
        known = facts.doc.known
        more = f"more: arriero gotchas show {known[0].id}" if known else ""
        head = paragraph("WHAT TO DO", more, width) or [Line("WHAT TO DO", "head")]
        lines += [Line(""), *head]
        told = (*facts.known, *facts.advice)
        lines += [line for text in told for line in bullet(text, width)]
    if facts.buffers:
        rows = [
            (
                SHORT[buffer.component],
                mib(buffer.bytes),
                str(buffer.line),
                printable(buffer.device)
                + ("" if buffer.role.value == "main" else f", {buffer.role.value} model"),
            )
            for buffer in _largest(facts.buffers)
        ]
        heads = ("allocated", "MiB", "line", "on")
        lines += [Line(""), *grid(heads, rows, width, right={1, 2})]
        if len(rows) < len(facts.buffers):
            smaller = f"{len(facts.buffers) - len(rows)} smaller ones: --json has all"
            lines += bullet(smaller, width)
    if facts.notices:
        lines += [Line(""), Line("NOTICED", "head")]
        lines += [line for text in facts.notices for line in bullet(text, width)]
    for child in facts.children:
        lines += [Line(""), *_log(child, width)]
    return lines


def _largest(buffers: Sequence[Buffer]) -> list[Buffer]:
    """What fits on a page, in the order of the log."""
    kept = sorted(buffers, key=lambda buffer: -buffer.bytes)[:_BUFFERS]
    return sorted(kept, key=lambda buffer: buffer.line)
