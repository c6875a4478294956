"""The reader as a trial uses it: line by line, with an exit status at the end."""

from __future__ import annotations

import ast
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from arriero import logs
from arriero.base.words import Component, Evidence, Kind, LogOutcome, Phase
from arriero.logs import LogReader, read_log
from arriero.logs.grammar import RULES, SIGNS, Act, By, Of, To, parse_table
from arriero.logs.notices import NOTICES

CAPTURED = Path(__file__).parent / "data" / "captured"
READY = (CAPTURED / "ready.txt").read_text().splitlines()


def fed(*lines: str) -> LogReader:
    reader = LogReader()
    for line in lines:
        reader.feed(line)
    return reader


def test_ready_is_said_once_the_model_is_loaded() -> None:
    reader = LogReader()
    for line in READY:
        before = reader.ready
        reader.feed(line)
        if reader.ready and not before:
            assert line.endswith("llama_server: model loaded")
            break
    else:
        pytest.fail("never ready")
    assert reader.phase is Phase.SERVING


@pytest.mark.parametrize(
    ("line", "ready"),
    [
        ("main: HTTP server is listening, hostname: 127.0.0.1, port: 8080, http threads: 7", False),
        ("main: server is listening on http://127.0.0.1:8080 - starting the main loop", True),
        ("0.01.092.502 I srv  llama_server: listening on http://127.0.0.1:18312", True),
        ("main: model loaded", True),
        ('{"tid":"1","level":"INFO","function":"main","line":3,"msg":"model loaded"}', True),
        ("srv  llama_server: loading model", False),
        ("0.00.108.630 I srv    load_model: loading model '/models/model loaded.gguf'", False),
    ],
)
def test_ready_in_each_era(line: str, ready: bool) -> None:
    assert fed(line).ready is ready


def test_buffers_and_values_so_far() -> None:
    reader = fed(*READY)
    assert reader.effective.n_ctx == 4096
    assert reader.effective.n_seq_max == 4
    assert reader.effective.kv_unified is True
    assert reader.effective.n_gpu_layers == 41
    assert reader.effective.flash_attn == "enabled"
    assert {b.component for b in reader.buffers} == {
        Component.WEIGHTS,
        Component.OUTPUT,
        Component.KV,
        Component.RS,
        Component.COMPUTE,
    }


def test_marks_count_what_shows_that_something_happened() -> None:
    reader = fed(
        "srv   prompt_save:  - saving prompt with length 215, total state size = 1.2 MiB",
        "slot update_slots: id 0 | task 1 | created context checkpoint 1 of 32 (size = 62.8 MiB)",
        "srv   prompt_save:  - saving prompt with length 216, total state size = 1.3 MiB",
    )
    saved = reader.signs["prompt_saved"]
    assert (saved.count, saved.first_line) == (2, 1)
    assert "216" in saved.last_text
    assert reader.signs["checkpoint_created"].count == 1
    assert "idle" not in reader.signs
    assert set(reader.signs) <= set(SIGNS)


def test_the_failure_is_there_as_soon_as_the_log_names_it() -> None:
    lines = (CAPTURED / "rs64.txt").read_text().splitlines()
    reader = LogReader()
    named = 0
    for number, line in enumerate(lines, start=1):
        reader.feed(line)
        failure = reader.failure_so_far
        if failure is not None and failure.component is Component.RS and not named:
            named = number
    assert 0 < named < len(lines)
    assert reader.failure_so_far == reader.readings(1)[0].failure


@pytest.mark.parametrize(
    ("status", "kind", "outcome"),
    [
        (-9, Kind.KILLED, LogOutcome.FAILED),
        (137, Kind.KILLED, LogOutcome.FAILED),
        (-6, Kind.CRASH, LogOutcome.FAILED),
        (134, Kind.CRASH, LogOutcome.FAILED),
        (139, Kind.CRASH, LogOutcome.FAILED),
        (-15, None, LogOutcome.STARTED),
        (0, None, LogOutcome.EXITED),
        (None, None, LogOutcome.STARTED),
    ],
)
def test_the_exit_status_tells_what_the_log_does_not(
    status: int | None, kind: Kind | None, outcome: LogOutcome
) -> None:
    (reading,) = fed("srv  llama_server: model loaded", "slot release: id 0").readings(status)
    assert (reading.failure.kind if reading.failure else None) == kind
    assert reading.outcome is outcome
    if reading.failure:
        assert reading.failure.evidence is Evidence.INFERRED
        assert reading.failure.fatal


def test_a_signal_after_a_named_failure_is_only_its_end() -> None:
    lines = (CAPTURED / "rs64-lv4-068.txt").read_text().splitlines()
    (reading,) = fed(*lines).readings(139)
    assert reading.failure is not None
    assert (reading.failure.kind, reading.failure.component) == (Kind.ALLOCATION, Component.RS)
    assert reading.secondary[-1].kind is Kind.CRASH


def test_the_end_of_the_last_line_is_told_once() -> None:
    (reading,) = fed(
        "srv  llama_server: model loaded",
        "srv  prompt_save:  - saving prompt with length 65, total state size = 65.001 MiB",
        "ggml-rpc.cpp:519: Remote RPC server crashed or returned malformed response",
    ).readings(-6)
    assert reading.failure is not None
    assert (reading.failure.kind, reading.failure.component) == (Kind.RPC, Component.PROMPT_CACHE)
    assert reading.secondary == ()


def test_a_request_out_of_memory_becomes_fatal_when_the_process_dies() -> None:
    lines = ("srv  llama_server: model loaded", "srv  operator(): got exception: std::bad_alloc")
    assert not fed(*lines).readings()[0].failure.fatal  # type: ignore[union-attr]  # that it is there is the test
    failure = fed(*lines).readings(-6)[0].failure
    assert failure is not None
    assert (failure.kind, failure.fatal) == (Kind.RUNTIME_ALLOCATION, True)


def test_a_router_and_its_children() -> None:
    router, sick, well = fed(
        "0.00.100.000 I srv  llama_server: starting server in router mode",
        "0.00.200.000 W srv    operator(): force-killing model instance name=a after timeout",
        "[34605] E llama_model_load: error loading model: unable to allocate CUDA0 buffer",
        "[34606] 0.00.100.000 I srv  llama_server: model loaded",
    ).readings()
    assert router.child is None
    assert router.failure is not None
    assert router.failure.kind is Kind.KILLED
    assert (sick.child, sick.outcome) == ("34605", LogOutcome.FAILED)
    assert (well.child, well.outcome, well.failure) == ("34606", LogOutcome.STARTED, None)


def test_nothing_is_something() -> None:
    (reading,) = read_log([])
    assert (reading.failure, reading.outcome, reading.era) == (None, LogOutcome.UNKNOWN, "unknown")


# --- long logs ----------------------------------------------------------------------------------


def long_log(requests: int, line: bytes) -> Iterator[bytes]:
    yield "\n".join(READY[:-3]).encode() + b"\n"
    for task in range(requests):
        yield b"""\
1.23.45%d.001 I slot launch_slot_: id  0 | task %d | processing task, is_child = 0
1.23.45%d.002 I slot print_timing: id  0 | task %d | prompt eval time = %d.10 ms / 9 tokens
1.23.45%d.003 I srv  update_slots: all slots are idle
""" % (task % 10, task, task % 10, task, task, task % 10)
    yield line


def test_a_long_log_is_read_whole_in_little_memory() -> None:
    requests = 60_000
    end = b"CUDA error: out of memory\n  current device: 0, in function alloc at /src/a.cu:5\n"
    tracemalloc.start()
    try:
        (reading,) = read_log(long_log(requests, end))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert reading.failure is not None
    assert (reading.failure.kind, reading.failure.phase) == (
        Kind.RUNTIME_ALLOCATION,
        Phase.SERVING,
    )
    assert reading.failure.line == len(READY) - 3 + 3 * requests + 1
    assert peak < 24 << 20


def test_one_endless_line_is_cut() -> None:
    chunks = (b"x" * (1 << 20) for _ in range(64))
    tracemalloc.start()
    try:
        (reading,) = read_log((*chunks, b"\nSegmentation fault\n"))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert reading.failure is not None
    assert (reading.failure.kind, reading.failure.line) == (Kind.CRASH, 2)
    assert peak < 80 << 20


def test_floods_are_capped_and_said_to_be() -> None:
    flood = [
        f"alloc_tensor_range: failed to allocate CUDA{n} buffer of size {n}" for n in range(2000)
    ]
    sizes = [f"load_tensors: CUDA{n} model buffer size = 1.00 MiB" for n in range(2000)]
    (reading,) = fed(*flood, *sizes).readings()
    assert len(reading.secondary) <= 256
    assert len(reading.buffers) <= 256
    assert "capped" in {n.id for n in reading.notices}


# --- the table ----------------------------------------------------------------------------------


def test_rules_are_named_once_and_notices_are_documented() -> None:
    ids = [rule.id for rule in RULES]
    assert len(ids) == len(set(ids))
    assert {rule.notice for rule in RULES if rule.notice} <= set(NOTICES)
    assert all(rule.kind for rule in RULES if rule.act in (Act.FAILURE, Act.DEATH))
    assert all(rule.component for rule in RULES if rule.act in (Act.SIZE, Act.TOTAL))
    assert all(rule.kind for rule in RULES if rule.act in (Act.END, Act.OF_DRAFT))
    assert all(rule.of for rule in RULES if rule.act is Act.DETAIL)
    shown = [rule for rule in RULES if rule.act in (Act.NOTICE, Act.RETRY)]
    assert all(rule.notice for rule in shown if rule.to is not To.WORKER)


@pytest.mark.parametrize("words", [Act, To, By, Of])
def test_every_word_of_the_table_is_used(words: type[Act | To | By | Of]) -> None:
    used = {word for rule in RULES for word in (rule.act, rule.to, rule.by, rule.of)}
    assert set(words) <= used


def test_what_a_row_means_is_in_the_table_alone() -> None:
    asked = [
        f"{path.name}:{node.lineno}"
        for path in Path(logs.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr == "id"
    ]
    assert asked == []


def test_a_table_row_is_key_and_pattern() -> None:
    rule, plain = parse_table(
        "[request family=CUDA]\nx :: MiB on :: (?P<index>\\d) <mib> MiB on\ny :: a(b"
    )
    assert rule.pattern.search("0 12.50 MiB on")["mib"] == "12.50"  # type: ignore[index]  # that it fits is the test
    assert (rule.family, rule.act) == ("CUDA", Act.REQUEST)
    assert plain.pattern.search("xa(bx")


def test_figures_of_absurd_length_are_only_cut() -> None:
    huge = "9" * 6000
    for line in (
        f"llama_context: n_ctx = {huge}",
        f"ggml_aligned_malloc: insufficient memory (attempted to allocate {huge}.{huge} MB)",
        f"alloc_tensor_range: failed to allocate CUDA0 buffer of size {huge}",
        f"llama_kv_cache:  CPU KV buffer size = {huge}.00 MiB",
        f"build: {huge} (abcdef0) with gcc",
        f"srv update: - cache state: {huge} prompts, {huge},{huge} MiB (limits: {huge} MiB)",
        f"slot created context checkpoint {huge} of 32 (size = 1.2.3,4 MiB)",
        f"{huge}.00.000.000 I main: model loaded",
    ):
        assert len(fed(line).readings()) == 1
        assert len(read_log([line.encode()])) == 1


def test_the_last_saved_prompt_is_known_in_a_long_log_too() -> None:
    lines = [
        f"srv  prompt_save:  - saving prompt with length {n}, total state size = 1.000 MiB\n"
        f"slot launch_slot_: id  0 | task {n} | processing task\n"
        for n in range(500)
    ]
    end = "srv  prompt_save:  - saving prompt with length 7, total state size = 1.0 MiB\nAborted\n"
    (reading,) = read_log([*(line.encode() for line in lines), end.encode()])
    assert reading.failure is not None
    assert reading.failure.component is Component.PROMPT_CACHE


AGAIN = b"""\
0.00.353.832 I llama_context: constructing llama_context
0.00.401.416 I sched_reserve:        CPU compute buffer size =     4.04 MiB
0.00.403.752 I common_speculative_init_result: creating MTP draft context against 'm.gguf'
0.00.403.792 I llama_context: constructing llama_context
0.00.463.984 I sched_reserve:        CPU compute buffer size =     2.40 MiB
0.00.904.162 I srv    load_model: initializing, n_slots = 2, n_ctx_slot = 1024
0.00.908.556 I spec common_specu: adding speculative implementation 'draft-mtp'
0.00.915.800 I sched_reserve:        CPU compute buffer size =     2.52 MiB
0.02.179.608 I slot   load_model: id  0 | task -1 | new slot, n_ctx = 1024
"""


def test_a_draft_context_that_reserves_once_more_is_still_the_draft() -> None:
    (reading,) = read_log([AGAIN])
    assert [(b.role, round(b.bytes / (1 << 20), 2)) for b in reading.buffers] == [
        ("main", 4.04),
        ("draft", 2.52),
    ]
