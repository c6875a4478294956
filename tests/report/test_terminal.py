from __future__ import annotations

import os
import re
import shlex
import subprocess

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from arriero.base.paste import quote
from arriero.base.words import Component, Cost, Evidence, Kind, Method
from arriero.record import NOT_KEPT, Explanations, History, HistoryEntry, Slope
from arriero.record.older import completed
from arriero.report.terminal import TerminalLayout
from arriero.report.terminal.diagnosis import LINES
from arriero.report.terminal.trials import trial_blocks
from arriero.report.view.text import cells, command, cut, encoded, printable, wrap
from arriero.report.view.trials import table
from tests.examples import example_diagnosis, example_explanation
from tests.report.laid_out import terminal
from tests.report.variants import HOSTILE, diagnoses, explanations, verifications, with_

WIDTHS = (40, 60, 80, 120)
DIAGNOSES = diagnoses()


def bash(script: str) -> list[str]:
    """What bash makes of some words, each ended by a zero byte."""
    out = subprocess.run(["/bin/bash", "-c", script], capture_output=True, check=True)
    return out.stdout.decode().split("\0")[:-1]


def pasted(text: str) -> list[str]:
    """The words of the command block as a shell reads them."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(("RUN THIS", "TRY THIS")))
    while not re.match(r"  \S", lines[start]):
        start += 1
    end = start
    while lines[end].endswith(" \\"):
        end += 1
    return bash("printf '%s\\0' " + "\n".join(lines[start : end + 1]))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", DIAGNOSES)
def test_no_line_is_wider_than_the_terminal(name: str, width: int) -> None:
    doc = DIAGNOSES[name]
    run = doc.recommendation
    exact = set(command(run.argv, run.env, width=width, indent="  ")) if run else set()
    for line in terminal(doc, width=width).splitlines():
        assert cells(line) <= width or line in exact, line


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", [name for name in DIAGNOSES if name != "unicode"])
def test_a_diagnosis_fits_on_a_page(name: str, width: int) -> None:
    text = terminal(DIAGNOSES[name], width=width)
    assert len(text.splitlines()) <= LINES
    assert text.endswith("\n")


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", DIAGNOSES)
def test_no_figure_of_a_trial_is_cut(name: str, width: int) -> None:
    doc = DIAGNOSES[name]
    large = [with_(t, change={"-np": (8, 1024), "-c": (8, 1048576 + t.n)}) for t in doc.trials]
    served = [with_(t, requests=with_(t.requests, sent=1000, ok=998)) for t in large]
    for one in (doc, with_(doc, trials=tuple(large)), with_(doc, trials=tuple(served))):
        trials = table(one)
        lines = [block.lines[0] for block in trial_blocks(trials, width, 0) if block.row]
        for row, line in zip(trials.rows, lines, strict=True):
            assert cells(line.text) <= width
            assert {*row.axes, *([row.served] if row.ready == "yes" else [])} <= {
                *line.text.split()
            }


def test_a_command_longer_than_the_page_is_whole() -> None:
    doc = DIAGNOSES["unicode"]
    assert doc.recommendation
    text = terminal(doc, width=40)
    assert "--option-24" in text
    assert "RUN THIS" in text


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kind", ["explanation", "verification"])
def test_logs_and_loads_keep_the_width(kind: str, width: int) -> None:
    docs = explanations() if kind == "explanation" else verifications()
    for doc in docs.values():
        text = terminal(doc, width=width)
        assert all(cells(line) <= width for line in text.splitlines())


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["example", "unicode", "gpus"])
def test_the_command_pastes_into_a_shell_as_it_was(name: str, width: int) -> None:
    doc = DIAGNOSES[name]
    assert doc.recommendation
    words = pasted(terminal(doc, width=width))
    env = [f"{key}={value}" for key, value in doc.recommendation.env.items()]
    assert words == [*env, *doc.recommendation.argv]


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"))))
@example(["\\"])
def test_any_words_survive_the_shell(argv: list[str]) -> None:
    # No shell per example: what shells do with "$(printf …)" is checked once elsewhere.
    lines = command(["x", *argv], width=50)
    assert all(line.endswith(" \\") for line in lines[:-1])
    joined = " ".join([*(line.removesuffix("\\") for line in lines[:-1]), lines[-1]])
    if "$(printf" not in joined:
        assert shlex.split(joined) == ["x", *argv]


def test_bash_reads_escaped_words_back() -> None:
    argv = ["a\x1b[31mb", "tab\tnl\nq'\\", "rtl\u202eend", "$HOME `id` ~", "", "é\x7f"]
    script = "printf '%s\\0' " + " ".join(map(quote, argv))
    assert bash(script) == argv
    assert "\x1b" not in script


def test_the_verdict_comes_first_then_the_command_then_the_table() -> None:
    text = terminal(example_diagnosis())
    marks = ["FAILED", "recurrent state (RS)", "RUN THIS", "-np 16", "first failure", "BOUNDARIES"]
    marks += ["per slot, measured", "NOT TRIED", "arriero report"]
    places = [text.index(mark) for mark in marks]
    assert places == sorted(places)


def test_the_example_says_what_a_person_needs() -> None:
    text = terminal(example_diagnosis())
    assert "CPU refused 4020.00 MiB = 64 slots × 62.81 MiB" in text
    assert "log line 26" in text
    assert "Not the model file, the tokenizer, the KV cache or the compute buffer." in text
    assert "Same cause; ignore these: RS in the fit probe (line 14)." in text
    assert "served up to 20 · ready up to 32 · fails from 33 (graph, RS from 64)" in text
    assert "repeats disagree from 32 to 33" in text
    assert "verified: served 64 of 64 · 268 MiB left at the peak · no steady growth" in text
    assert "costs prompt reuse, concurrency" in text
    assert "MALLOC_ARENA_MAX=1; the command above does not" in text


def test_a_product_is_only_claimed_where_it_is_exact() -> None:
    doc = example_diagnosis()
    rs, *others = doc.slopes
    size = doc.trials[1].failure
    assert size
    assert size.bytes
    for wrong in (
        with_(rs, bytes=rs.bytes + 6000),
        with_(rs, method=Method.ESTIMATED),
        with_(rs, component=others[0].component),
    ):
        assert "slots ×" not in terminal(with_(doc, slopes=(wrong,)))
    odd = with_(doc.verdict, failure=with_(size, bytes=size.bytes + 1))
    assert "slots ×" not in terminal(with_(doc, verdict=odd))
    # A slope read from "62.81 MiB" in a log is as good as the whole bytes behind it.
    rounded = Slope(component=rs.component, per="slot", bytes=65861059, method=Method.MEASURED)
    assert "= 64 slots × 62.81 MiB" in terminal(with_(doc, slopes=(rounded,)))


def test_a_chunk_that_divides_evenly_is_no_product() -> None:
    doc = example_diagnosis()
    tokens = doc.trials[1].effective.n_ctx
    assert tokens
    assert doc.trials[1].failure
    chunk = with_(doc.trials[1].failure, component=Component.KV, bytes=256 * tokens)
    whole = Slope(component=Component.KV, per="token", bytes=1024, method=Method.MEASURED)
    verdict = with_(doc.verdict, component=Component.KV, failure=chunk)
    text = terminal(with_(doc, verdict=verdict, slopes=(whole,)))
    assert "tokens ×" not in text
    exact = with_(whole, bytes=256)
    assert "tokens × 256 B" in terminal(with_(doc, verdict=verdict, slopes=(exact,)))


def test_a_chunk_is_told_from_its_buffer() -> None:
    text = terminal(DIAGNOSES["gpus"])
    assert "Vulkan1 refused 2048.00 MiB, a chunk of a buffer of 8192.00 MiB" in text
    assert "MiB on Vulkan1" in text


def test_methods_that_are_not_measured_are_told() -> None:
    text = terminal(DIAGNOSES["gpus"])
    assert "per token of context, exact: KV 64 KiB" in text
    assert "per row of -ub, estimated: compute 4 KiB" in text


def test_what_is_inferred_says_so() -> None:
    text = terminal(DIAGNOSES["crash while serving"])
    assert "(inferred: the log lacks" in text
    assert "ended by SIGABRT" in text
    assert "crash, inferred" in text
    named = with_(example_explanation().failure, evidence=Evidence.INFERRED)
    assert "inferred" in terminal(with_(example_explanation(), failure=named))


def test_ready_is_not_served() -> None:
    text = terminal(DIAGNOSES["ready only"])
    assert text.count("READY") == 1
    assert "SERVED" not in text
    assert "served was not shown" not in text
    assert "no run showed that it serves" in text


def test_nothing_failed_needs_no_command() -> None:
    text = terminal(DIAGNOSES["everything served"])
    assert "SERVED" in text
    assert "RUN THIS" not in text


def test_an_unverified_command_is_not_called_proved() -> None:
    text = terminal(DIAGNOSES["no limit"])
    assert "TRY THIS (not verified)" in text
    assert "RUN THIS" not in text
    assert "verified: served" not in text
    assert "worst case unknown" in text


def test_an_interrupted_record_says_so_before_all() -> None:
    text = terminal(DIAGNOSES["interrupted"])
    assert text.index("NOT FINISHED") < text.index("FAILED ")
    assert "NO VERDICT" in terminal(DIAGNOSES["interrupted at once"])


def test_a_failing_baseline_points_to_placement() -> None:
    assert "look at placement" in " ".join(terminal(DIAGNOSES["baseline fails"]).split())


def test_a_refused_option_is_not_blamed_on_placement() -> None:
    failing = DIAGNOSES["baseline fails"]
    for kind in (Kind.CONFIG, Kind.MODEL, Kind.ENVIRONMENT):
        assert failing.verdict is not None
        failure = with_(failing.verdict.failure, kind=kind)
        verdict = with_(failing.verdict, kind=kind, failure=failure)
        text = terminal(with_(failing, verdict=verdict))
        assert "look at placement" not in " ".join(text.split())
        assert ("arriero check" in text) is (kind is Kind.CONFIG)


def test_a_limit_is_told_with_its_kind() -> None:
    assert "limit 3.5 GiB address space" in terminal(example_diagnosis())
    assert "limit 3 GiB memory cgroup" in terminal(DIAGNOSES["cgroup"])
    bare = with_(example_diagnosis(), notes=())
    assert "not RAM" in " ".join(terminal(bare, width=120).split())


def test_left_out_trials_are_counted() -> None:
    text = terminal(DIAGNOSES["many trials"])
    left = re.search(r"(\d+) trials left out", " ".join(text.split()))
    assert left
    shown = [line for line in text.splitlines() if re.match(r" *\d+  ", line)]
    assert int(left[1]) + len(shown) == len(DIAGNOSES["many trials"].trials)
    assert {"2", "9"} <= {line.split()[0] for line in shown}


def test_the_legend_explains_only_what_is_used() -> None:
    text = terminal(DIAGNOSES["everything served"])
    assert "refused" not in text
    assert "! refused" in terminal(example_diagnosis())


def test_no_colour_unless_asked_for() -> None:
    doc = example_diagnosis()
    plain, coloured = terminal(doc), terminal(doc, colour=True)
    assert "\x1b" not in plain
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == plain
    assert coloured.count("\x1b[0m") * 2 == coloured.count("\x1b[")


def test_strangers_text_cannot_steer_the_terminal() -> None:
    texts = [terminal(DIAGNOSES["hostile"])]
    texts += [terminal(explanations()["hostile"])]
    texts += [terminal(verifications()["no steps"])]
    for text in texts:
        assert not set(text) & {"\x1b", "\u202e", "\x07"}
        assert "\\x1b[31m" in "".join(text.split())


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp437"])
@pytest.mark.parametrize("name", DIAGNOSES)
def test_other_encodings_can_print_it(name: str, encoding: str) -> None:
    text = terminal(DIAGNOSES[name], encoding=encoding)
    text.encode(encoding)
    if encoding == "ascii" and name == "example":
        assert "64 slots x 62.81 MiB" in text
        assert "\\u" not in text


def test_a_path_is_escaped_rather_than_changed() -> None:
    assert encoded("a–b", "ascii") == "a-b"
    assert encoded("a–b", "ascii", exact=True) == "a\\u2013b"


def test_a_log_of_many_starts_fits_on_a_page() -> None:
    one = example_explanation()
    assert one.failure is not None
    many = with_(one, secondary=(one.failure,) * 200, buffers=one.buffers * 60)
    text = terminal(many)
    assert len(text.splitlines()) <= 45
    assert "184 more" in text
    assert f"{len(many.buffers) - 16} smaller ones" in text


def test_a_router_log_shows_each_child() -> None:
    text = terminal(explanations()["router"])
    assert "2 children, 1 of them with a failure" in text
    assert "router child 34605" in text
    assert "router child 41303" in text


def test_an_explanation_quotes_the_log() -> None:
    text = terminal(example_explanation())
    assert "> E llama_init_from_model: failed to initialize the context" in text
    assert "no limit" not in text
    both = Explanations(explanations=(example_explanation(), explanations()["exited"]))
    text = terminal(both)
    assert "FAILED" in text
    assert "EXITED" in text


def test_an_explanation_says_what_to_do() -> None:
    text = terminal(example_explanation())
    assert "rs-alloc-slots: Recurrent state is allocated once per slot" in text
    assert "Fewer slots: `-np 1`." in text
    assert "second paragraph" not in text
    assert "-np 1 (costs concurrency): recurrent state is per slot" in text
    assert "arriero gotchas show rs-alloc-slots" in text
    silent = with_(example_explanation(), known=(), advice=())
    assert "WHAT TO DO" not in terminal(silent)


def test_every_kind_of_failure_has_its_words() -> None:
    text = " ".join(terminal(explanations()["every kind"]).split())
    for words in ("KV cells used up", "options refused", "RPC worker", "killed", "hang", "crash"):
        assert words in text


def test_a_verification_shows_what_proves_each_step() -> None:
    text = terminal(verifications()["no evidence"])
    assert "NOT VERIFIED" in text
    assert "2 steps without evidence" in text
    assert text.count("NO EVIDENCE") == 2
    text = terminal(verifications()["verified"])
    assert "VERIFIED  64 of 64 requests answered" in text
    assert "headroom unknown · growth unknown" in terminal(verifications()["url"])


def test_history_is_one_line_each() -> None:
    entry = HistoryEntry(
        id="diag-3f2a9c",
        schema="arriero.diagnosis/1",
        created_at="2026-09-20T02:11:07Z",
        summary="RS refused " + HOSTILE,
        complete=False,
    )
    text = terminal(History(entries=(entry, entry)))
    assert len(text.splitlines()) == 3
    assert "2026-09-20 02:11" in text
    assert "(not finished)" in text
    assert "no records" in terminal(History(entries=()))
    one = History(entries=(entry,))
    for width in WIDTHS:
        assert "diag-3f2a9c " in terminal(one, width=width), "an ID is never cut"


def test_wide_characters_count_twice() -> None:
    assert cells("模型") == 4
    assert cells("☎\ufe0f") == 2  # shown as a picture, which a sum over characters does not see
    assert cells(cut("☎\ufe0f☎\ufe0f☎\ufe0f", 4)) <= 4
    assert cells("e\u0301") == 1
    assert all(cells(line) <= 7 for line in wrap("模型模型模型模型 abc", 7, first="> "))


@given(st.text(), st.integers(8, 60))
def test_wrapping_loses_nothing(text: str, width: int) -> None:
    text = printable(text)
    lines = wrap(text, width, first="  ")
    assert "".join("".join(lines).split()) == "".join(text.split())
    assert all(cells(line) <= width for line in lines)


def test_options_of_a_pipe_are_plain() -> None:
    read, write = os.pipe()
    with os.fdopen(read), os.fdopen(write, "w", encoding="utf-8") as stream:
        assert TerminalLayout.on(stream) == TerminalLayout(width=80, colour=False, encoding="utf-8")


def test_long_names_of_flags_are_known() -> None:
    """A record keeps the values in force under their long names."""
    doc = example_diagnosis()
    long = {"--ctx-size": "4096", "--parallel": "64"}
    doc = with_(doc, baseline=with_(doc.baseline, effective=long, given={}))
    text = terminal(completed(doc))
    assert "with -cram 0 -ctxcp 0 MALLOC_ARENA_MAX=1" in text


def test_a_failure_of_one_variable_is_not_told_of_another() -> None:
    doc = example_diagnosis()
    moved = with_(doc.trials[0], change={"-np": (64, 1), "-c": (4096, 2048)})
    text = terminal(with_(doc, trials=(moved, *doc.trials[1:])))
    assert "-c   ready and served up to 4096 · no failure seen\n" in text


def test_what_was_not_kept_is_not_offered_for_a_report() -> None:
    one, load = example_diagnosis(), verifications()["example"]
    lost = f"{NOT_KEPT}: the disk is full"
    assert f"arriero report {one.id}" in terminal(one)
    assert "arriero report" not in terminal(with_(one, notes=(lost,)))
    assert f"record {load.id}" in terminal(load)
    assert load.id not in terminal(with_(load, notes=(lost,)))


def test_free_is_not_a_cost() -> None:
    doc = example_diagnosis()
    free = with_(doc.recommendation, costs=(Cost.FREE,))
    assert "costs nothing" in terminal(with_(doc, recommendation=free))
    both = with_(doc.recommendation, costs=(Cost.FREE, Cost.SPEED))
    assert "costs speed ·" in terminal(with_(doc, recommendation=both))
