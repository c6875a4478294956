from __future__ import annotations

import re

import pytest

from arriero.base.words import LimitKind
from arriero.record import DeviceRecord, Explanations, LimitRecord
from arriero.report.markdown.syntax import code, fence, prose
from arriero.report.view.diagnosis import diagnosis_view
from tests.examples import example_diagnosis, example_explanation
from tests.report.laid_out import markdown, terminal, upstream
from tests.report.variants import diagnoses, explanations, verifications, with_

DIAGNOSES = diagnoses()
FORM = (
    "Name and Version",
    "Operating systems",
    "GGML backends",
    "Hardware",
    "Models",
    "Problem description & steps to reproduce",
    "First Bad Commit",
    "Relevant log output",
)


def outside_code(text: str) -> str:
    text = re.sub(r"(?ms)^(`{3,})[^\n]*\n.*?^\1$", "", text)
    return re.sub(r"(?s)(?<![\\`])(`+)(?!`).*?(?<!`)\1(?!`)", "", text)


def tables(text: str) -> list[list[str]]:
    """Tables as lists of lines."""
    return [block.splitlines() for block in re.findall(r"(?m)(?:^\|.*\|$\n?)+", text)]


@pytest.mark.parametrize("name", DIAGNOSES)
def test_every_table_has_as_many_cells_in_each_row(name: str) -> None:
    for text in (markdown(DIAGNOSES[name]), upstream(DIAGNOSES[name])):
        for rows in tables(text):
            assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows}) == 1


@pytest.mark.parametrize("name", DIAGNOSES)
def test_all_trials_are_there(name: str) -> None:
    doc = DIAGNOSES[name]
    text = markdown(doc)
    numbers = {int(n) for n in re.findall(r"(?m)^\| (\d+) \|", text)}
    assert numbers == {trial.n for trial in doc.trials}


def test_strangers_text_cannot_become_markup() -> None:
    docs = [markdown(DIAGNOSES["hostile"]), upstream(DIAGNOSES["hostile"])]
    docs.append(markdown(explanations()["hostile"]))
    docs.append(markdown(verifications()["no steps"]))
    for text in docs:
        bare = outside_code(text)
        assert not re.search(r"(?<!\\)<(?!/?(details|summary)>|!-- -->)", bare)
        assert not set(text) & {"\x1b", "\u202e"}


def test_pasting_pings_and_links_nobody() -> None:
    doc = with_(example_diagnosis(), notes=("ask @someone about #26128 and _this_ <b>",))
    text = markdown(doc)
    assert "@someone" not in text
    assert "\\#26128" in text
    assert "\\_this\\_ \\<b\\>" in text


def test_fences_hold_what_has_fences_in_it() -> None:
    assert fence(["```", "x"]).startswith("````\n")
    assert code("a`b") == "`` a`b ``"


@pytest.mark.parametrize("name", DIAGNOSES)
def test_all_outputs_tell_the_same_verdict(name: str) -> None:
    doc = DIAGNOSES[name]
    finding = diagnosis_view(doc).verdict
    plain = " ".join(terminal(doc, width=200).split())
    assert f"{finding.word} {finding.sentence}" in plain
    assert prose(finding.sentence) in markdown(doc)
    assert prose(finding.sentence) in upstream(doc)


def test_explanations_and_verifications_are_complete() -> None:
    both = Explanations(explanations=(example_explanation(), explanations()["router"]))
    text = markdown(both)
    assert "### What to do" in text
    assert "rs-alloc-slots" in text
    assert text.count("log line") >= 2
    assert "router child 41303" in text
    text = markdown(verifications()["example"])
    assert "**NOT VERIFIED**: 64 of 64 requests answered; 1 step skipped" in text
    assert "restore from the prompt cache" in text


@pytest.mark.parametrize("name", DIAGNOSES)
def test_the_form_has_every_field_in_its_order(name: str) -> None:
    text = upstream(DIAGNOSES[name])
    assert tuple(re.findall(r"(?m)^### (.+)$", text)) == FORM
    assert text.startswith("Eval bug: ")


def test_the_form_is_filled_from_the_record() -> None:
    text = upstream(example_diagnosis())
    assert "version: 0.1.0-dev (build 10434, commit 7e4c0a9)" in text
    assert "### Operating systems\n\nLinux\n" in text
    assert "### GGML backends\n\nCPU\n" in text
    assert "( ulimit -v 3670016  # KiB of address space" in text
    assert "failed to allocate buffer for rs cache" in text
    assert "-np 64 --no-warmup" in text
    assert "Not known" in text


def test_the_backend_is_that_of_the_failing_device() -> None:
    assert "### GGML backends\n\nVulkan\n" in upstream(DIAGNOSES["gpus"])
    doc = with_(DIAGNOSES["everything served"], verdict=None)
    names = ("CUDA0", "ROCm0", "MTL0", "RPC0", "CPU")
    devices = tuple(
        DeviceRecord(name=name, description="x", total=None, free=None) for name in names
    )
    doc = with_(doc, baseline=with_(doc.baseline, devices=devices))
    assert "### GGML backends\n\nCPU, CUDA, HIP, Metal, RPC\n" in upstream(doc)


def test_each_system_is_a_choice_of_the_form() -> None:
    base = example_diagnosis()
    for system, choice in (
        ("Darwin 25.1 arm64", "Mac"),
        ("macOS 26", "Mac"),
        ("Windows 11", "Windows"),
        ("FreeBSD 15", "BSD"),
        ("Plan 9", "Other?"),
    ):
        doc = with_(base, baseline=with_(base.baseline, system=system))
        assert f"### Operating systems\n\n{choice}" in upstream(doc)


def test_a_cgroup_limit_is_set_the_way_a_shell_can() -> None:
    base = example_diagnosis()
    limit = LimitRecord(bytes=3 << 30, kind=LimitKind.CGROUP)
    text = upstream(with_(base, baseline=with_(base.baseline, limit=limit)))
    assert "systemd-run --user --scope -p MemoryMax=3221225472 \\" in text
