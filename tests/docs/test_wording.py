"""Texts that tell a person what to do: hints of errors, workarounds, helps of options."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import arriero
from arriero.gotchas import Entry, registry

ROOT = Path(arriero.__file__).parent
NOT_VERBS = frozenset(
    [
        "a",
        "an",
        "the",
        "this",
        "that",
        "these",
        "it",
        "its",
        "there",
        "is",
        "are",
        "was",
        "were",
        "do",
        "does",
        "did",
        "has",
        "have",
        "had",
        "no",
        "not",
        "what",
        "which",
        "who",
        "where",
        "when",
        "why",
        "how",
    ]
)
"""Words with which no instruction begins: articles, pronouns, questions."""


def _texts(node: ast.expr) -> Iterator[str]:
    """The literal beginning of each text that an expression can be; empty if it is computed."""
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.JoinedStr(values=[first, *_]):
            yield from _texts(first)
        case ast.IfExp(body=body, orelse=orelse):
            yield from (*_texts(body), *_texts(orelse))
        case ast.BinOp(left=left):
            yield from _texts(left)


def _hints() -> Iterator[tuple[str, str]]:
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.keyword) and node.arg == "hint":
                for text in _texts(node.value):
                    yield f"{path.relative_to(ROOT)}:{node.value.lineno}", text


def _fault(text: str) -> str:
    if text.split()[0].strip("`,:;").lower() in NOT_VERBS:
        return "begin with what to do"
    return "one line, no question, no full stop" if text.endswith(("?", ".")) else ""


def test_a_hint_says_what_to_do() -> None:
    hints = [(where, text) for where, text in _hints() if text]
    assert len(hints) > 80
    assert [(where, fault, text) for where, text in hints if (fault := _fault(text))] == []


@pytest.mark.parametrize("entry", registry().entries, ids=lambda entry: entry.id)
def test_a_gotcha_is_written_in_sentences(entry: Entry) -> None:
    for name, text in entry.sections.items():
        assert text.endswith((".", ".)")), f"{name} ends without a full stop"
    workaround = entry.sections["Workaround"]
    assert workaround[0].isupper(), "a workaround begins with what to do, not with a flag"
    assert workaround.split()[0].lower().strip(".,") not in NOT_VERBS - {"there", "do"}
