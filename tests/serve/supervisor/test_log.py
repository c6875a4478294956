"""The log of an engine: in files of bounded size, and read when it has died."""

from __future__ import annotations

from pathlib import Path

from arriero.base.words import Kind
from arriero.serve.supervisor.log import KEPT_LINES, RotatingLog, StartLog


def test_files_are_bounded_and_the_last_lines_are_there(tmp_path: Path) -> None:
    log = RotatingLog(tmp_path / "own" / "engine.log", 3 << 16)
    for n in range(20_000):
        log.write(f"line {n} " + "x" * 80)
    log.close()
    files = sorted((tmp_path / "own").iterdir())
    assert [file.name for file in files] == ["engine.log", "engine.log.1", "engine.log.2"]
    assert all(file.stat().st_size <= 1 << 16 for file in files)
    assert (tmp_path / "own" / "engine.log").read_text().splitlines()[-1].startswith("line 19999 ")
    assert (tmp_path / "own").stat().st_mode & 0o777 == 0o700


def test_a_second_run_goes_on_in_the_same_file(tmp_path: Path) -> None:
    for word in ("first", "second"):
        log = RotatingLog(tmp_path / "engine.log", 1 << 20)
        log.write(word)
        log.close()
    assert (tmp_path / "engine.log").read_text() == "first\nsecond\n"


def test_a_log_that_cannot_be_written_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    log = RotatingLog(tmp_path / "file" / "engine.log", 1 << 20)
    log.write("lost")
    assert "cannot write" in log.error
    log.close()


def started(*lines: str) -> StartLog:
    log = StartLog(RotatingLog(None, 1 << 20), {"sesame"})
    log.on_line("0.00.000.000 I srv  llama_server: model loaded")
    log.serves()
    for line in lines:
        log.on_line(line)
    return log


def test_lines_since_it_serves_count_in_its_verdict() -> None:
    lines = ("slot launch_slot_: id  0 | task 0 | processing task, is_child = 0",) * KEPT_LINES
    died = "ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate buffer of size 4096"
    log = started(*lines, died)
    reading, _ = log.read(-6)
    assert reading.failure is not None
    assert reading.failure.kind in (Kind.ALLOCATION, Kind.RUNTIME_ALLOCATION)
    assert reading.failure.line == KEPT_LINES + 2, "as it is in the log"


def test_what_its_slots_hold_and_how_fast_it_reads() -> None:
    log = started(
        "slot      release: id  0 | task 0 | stop processing: n_tokens = 900, truncated = 0",
        "slot print_timing: id  1 | task 4 | prompt eval time = 2000.00 ms / 1000 tokens (2 ms)",
        "slot      release: id  1 | task 4 | stop processing: n_tokens = 1100, truncated = 0",
        "slot print_timing: id  1 | task 9 | prompt eval time = 153.14 ms / 1 tokens (153 ms)",
        "slot   operator(): id  0 | task 9 | new prompt, n_ctx_slot = 2048, task.n_tokens = 400",
    )
    assert log.held == 1500
    assert log.speed == 500.0


def test_an_engine_that_sleeps_holds_nothing() -> None:
    log = started(
        "slot      release: id  0 | task 0 | stop processing: n_tokens = 900, truncated = 0",
        "srv  handle_sleep: server is entering sleeping state",
    )
    assert log.sleeping
    assert log.held is None
    log.on_line("srv  handle_sleep: server is exiting sleeping state")
    assert not log.sleeping


def test_keys_are_not_kept() -> None:
    log = started("the key is sesame")
    assert log.tail(1) == ["the key is ***"]


def test_one_that_was_asked_to_end_says_so() -> None:
    assert started("srv    operator(): operator(): cleaning up before exit...").leaving


def test_the_grammar_of_a_request_is_not_kept(tmp_path: Path) -> None:
    """Seen on 10068 and 10434: the only text of a client that they log without ``-v``."""
    kept = RotatingLog(tmp_path / "engine.log", 1 << 20)
    log = StartLog(kept, ())
    for line in (
        "parse: error parsing grammar: Undefined rule identifier 'Zanahoria'",
        "",
        "root ::= Zanahoria",
        "srv    operator(): got exception",
        "root ::= after it lines are kept again",
    ):
        log.on_line(line)
    kept.close()
    assert "Zanahoria" not in (tmp_path / "engine.log").read_text()
    assert log.tail() == [
        "parse: error parsing grammar: <grammar>",
        "<grammar>",
        "<grammar>",
        "srv    operator(): got exception",
        "root ::= after it lines are kept again",
    ]
