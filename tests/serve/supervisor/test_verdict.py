"""Why an engine was lost, by its log, its end and the kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

from arriero.base.words import Evidence, Kind, Phase
from arriero.logs import LogReader
from arriero.process import Exit
from arriero.serve.supervisor.verdict import Condemned, Verdict, oom_kills, signal_of, verdict

READY = (
    "0.00.000.000 I srv  llama_server: model loaded",
    "0.00.000.000 I srv  llama_server: listening on http://127.0.0.1:8080",
)


def lost(
    *lines: str,
    status: int | None,
    serving: bool = True,
    condemned: Condemned | None = None,
    oom: bool = False,
) -> Verdict:
    reader = LogReader()
    for line in (*(READY if serving else ()), *lines):
        reader.feed(line)
    phase = Phase.SERVING if serving else Phase.LOAD
    end = None if status is None else Exit(status)
    reading = reader.readings(None if condemned else status)[0]
    return verdict(reading, phase, end, condemned, lines=9, oom=oom)


@pytest.mark.parametrize("status", [-9, -15, -2, -1, 0])
def test_a_kill_from_outside_blames_no_request(status: int) -> None:
    found = lost(status=status)
    assert found.failure.kind is Kind.KILLED
    assert found.failure.evidence is Evidence.INFERRED
    assert not found.blames_requests
    assert not found.memory


@pytest.mark.parametrize("status", [-11, -6, -7, -8])
def test_a_crash_can_be_the_work_of_a_request(status: int) -> None:
    found = lost(status=status)
    assert found.failure.kind is Kind.CRASH
    assert found.blames_requests


def test_the_kernel_that_kills_for_memory_is_named() -> None:
    found = lost(status=-9, oom=True)
    assert found.failure.kind is Kind.KILLED
    assert "memory" in found.failure.text
    assert found.memory
    assert found.blames_requests


def test_a_kill_while_it_loads_is_no_request() -> None:
    assert not lost(status=-9, oom=True, serving=False).blames_requests


def test_what_the_log_names_comes_before_the_signal() -> None:
    found = lost(
        "ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate buffer of size 17179869184",
        status=-6,
    )
    assert found.failure.bytes == 17179869184
    assert found.memory
    assert found.blames_requests


def test_an_old_refusal_is_not_why_it_was_killed() -> None:
    found = lost(
        "srv  send_error: task id = 3, error: the request exceeds the available context size",
        status=-9,
    )
    assert found.failure.kind is Kind.KILLED


def test_a_hang_is_what_was_seen_whatever_the_log_says() -> None:
    found = lost(
        "ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate buffer of size 17179869184",
        status=-9,
        condemned=Condemned(Kind.HANG, "no answer", blames_requests=True),
    )
    assert (found.failure.kind, found.failure.text) == (Kind.HANG, "no answer")
    assert found.blames_requests
    assert not found.memory


def test_errors_alone_are_explained_by_the_log_where_it_can() -> None:
    condemned = Condemned(Kind.BACKEND, "it answers 500")
    assert lost(status=-9, condemned=condemned).failure.text == "it answers 500"
    said = lost(
        "ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate buffer of size 17179869184",
        status=-9,
        condemned=condemned,
    )
    assert said.failure.bytes == 17179869184
    assert said.memory


def test_signals_have_names() -> None:
    assert signal_of(Exit(-11)) == "SIGSEGV"
    assert signal_of(Exit(1)) is None
    assert signal_of(None) is None


def test_kills_for_memory_are_counted(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    assert oom_kills(tmp_path) == 0
    (tmp_path / "proc" / "vmstat").write_text("nr_free_pages 7\noom_kill 3\n")
    assert oom_kills(tmp_path) == 3
