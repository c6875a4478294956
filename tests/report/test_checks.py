"""Checks, gotchas and verdicts on terminals of two widths."""

from __future__ import annotations

from typing import Literal

import pytest

from arriero.jobs.check import CheckOptions, check
from arriero.jobs.gotchas import entries, shipped_entries
from arriero.record import GotchaVerdict, Verdicts
from tests.report.laid_out import terminal

Word = Literal["reproduced", "not reproduced", "could not run"]
WIDTHS = pytest.mark.parametrize("width", [40, 80])
BAD = "llama-server -m x.gguf -fa --port 80 --draft-max 3 --rpc 10.0.0.1:50052 --nope"


def verdict(word: Word, reason: str = "") -> GotchaVerdict:
    return GotchaVerdict(
        gotcha="rpc-prompt-cache-abort", reproduction="worker-short-of-memory", build=10434,
        verdict=word, reason=reason, machine="Linux x86_64, CPU", at="2026-11-30", seconds=90.0,
    )  # fmt: skip


def widest(text: str) -> int:
    return max(map(len, text.splitlines()))


@WIDTHS
def test_a_check_keeps_to_its_width(width: int) -> None:
    found = check(BAD.split(), CheckOptions(assume_build=10434))
    text = terminal(found, width=width)
    assert widest(text) <= width
    flat = " ".join(text.split())
    for finding in found.findings:
        assert f"{finding.severity.upper()} {finding.id}" in flat
        assert " ".join(finding.because.split()) in flat
    assert "maybe; unknown: the workers' free memory" in flat
    for one in found.unchecked:
        assert one.id in flat
        assert one.missing in flat


@WIDTHS
def test_verdicts_are_told_apart_with_their_reasons(width: int) -> None:
    document = Verdicts(
        build=10434,
        verdicts=(
            verdict("could not run", "there is no Vulkan device"),
            verdict("reproduced"),
            verdict("not reproduced", "the run served every request"),
        ),
        without=("open-without-key",),
        complete=False,
    )
    text = terminal(document, width=width)
    assert widest(text) <= width
    flat = " ".join(text.split())
    parts = [
        "REPRODUCED 1 rpc-prompt",
        "NOT REPRODUCED 1 rpc-prompt",
        "the run served every request",
    ]
    parts += ["COULD NOT RUN 1 rpc-prompt", "there is no Vulkan device"]
    parts += ["WITHOUT A REPRODUCTION 1 open-without-key", "build 10434, 4.5 minutes, interrupted"]
    at = [flat.index(part) for part in parts]
    assert at == sorted(at)


@WIDTHS
def test_the_list_and_each_gotcha_keep_to_their_width(width: int) -> None:
    listed = terminal(entries(), width=width)
    assert widest(listed) <= width
    for one in shipped_entries().gotchas:
        assert one.id in listed
        shown = terminal(one, width=width)
        assert widest(shown) <= width
        for heading in one.sections:
            assert heading.upper() in shown.splitlines()
        for seen in one.verdicts:
            assert f"{seen.build}  {seen.verdict}" in shown


def test_the_list_says_what_each_is_about() -> None:
    every = shipped_entries()
    for width, lines in ((160, 1), (80, 2)):
        listed = terminal(every, width=width).splitlines()
        assert len(listed) == lines * len(every.gotchas) + (lines == 1)
        for one in every.gotchas:
            at = next(i for i, line in enumerate(listed) if line.split()[0] == one.id)
            told = " ".join(" ".join(listed[at : at + lines]).split())
            begin = f"{one.id} {one.severity}{',' * (lines - 1)} {one.status} {one.title[:60]}"
            assert told.startswith(begin), told


def test_words_of_strangers_reach_no_terminal_as_commands() -> None:
    found = check(
        ["llama-server", "-m", "\x1b[31mx", "--\x1b]0;x"], CheckOptions(assume_build=10434)
    )
    assert "\x1b" not in terminal(found)
    assert "\x1b[1;31mERROR  flag-unknown\x1b[0m" in terminal(found, colour=True)
