"""The pages about gotchas: every one is there, says what its file says, and links to pages."""

from __future__ import annotations

import re

import msgspec
import pytest

from arriero.gotchas import registry
from arriero.jobs.gotchas import shipped_entries
from arriero.record import GotchaEntry, Gotchas
from arriero.report.markdown.gotchas import INDEX, pages

ENTRIES = shipped_entries()
PAGES = pages(ENTRIES)
CODE = re.compile(r"`[^`\n]*`")
ESCAPED = re.compile(r"\\.")
LINK = re.compile(r"\]\(([^)]+)\)")


def test_each_gotcha_has_a_page_that_the_index_links() -> None:
    ids = {entry.id for entry in registry().entries}
    assert set(PAGES) == {INDEX} | {f"{name}.md" for name in ids}
    assert set(LINK.findall(PAGES[INDEX])) == {f"{name}.md" for name in ids}
    for entry in registry().entries:
        assert f"## {entry.bundle}\n" in PAGES[INDEX]


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name: str) -> None:
    for target in LINK.findall(PAGES[name]):
        assert target in PAGES or re.fullmatch(r"https://github.com/[\w./-]+/issues/\d+", target)


@pytest.mark.parametrize("one", ENTRIES.gotchas, ids=lambda one: one.id)
def test_a_page_says_what_its_file_says(one: GotchaEntry) -> None:
    page = PAGES[f"{one.id}.md"]
    at = [page.index(f"\n## {heading}\n") for heading in one.sections]
    assert at == sorted(at)
    assert f"**{one.status}**" in page
    for other in one.related:
        assert f"[{other}]({other}.md)" in page
    for issue in one.provenance["issues"]:
        assert f"[{issue}](https://github.com/{issue.replace('#', '/issues/')})" in page
    for verdict in one.verdicts:
        assert f"### {verdict.reproduction} on {verdict.build}\n" in page
        assert f"| {verdict.build} | {verdict.reproduction} | {verdict.verdict} |" in page


@pytest.mark.parametrize("name", PAGES)
def test_tables_are_whole_and_text_is_no_markup(name: str) -> None:
    for block in re.findall(r"(?:^\|.*\n)+", PAGES[name], re.MULTILINE):
        rows = [CODE.sub("", ESCAPED.sub("", row)).count("|") for row in block.splitlines()]
        assert len(set(rows)) == 1, block
    bare = ESCAPED.sub("", CODE.sub("", PAGES[name]))
    assert "<" not in bare, "would be taken for HTML"


def test_what_would_be_markup_is_escaped() -> None:
    one = ENTRIES.gotchas[0]
    odd = {**one.sections, "Symptom": "a <b> of _x_ | `<kept>` ggml-org/llama.cpp#1"}
    changed = msgspec.structs.replace(one, sections=odd)
    text = pages(Gotchas(gotchas=(changed,)))[f"{one.id}.md"]
    assert r"a \<b> of \_x\_ | `<kept>` [ggml-org/llama.cpp#1](" in text
