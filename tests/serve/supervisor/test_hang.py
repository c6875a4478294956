"""Busy or hanging: what is seen of a process from outside, with a clock of the test's own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from arriero.serve.supervisor import hang
from arriero.serve.supervisor.hang import HangClock


class World:
    """A process whose CPU time and lines the test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, remote: bool = False) -> None:
        self.now, self.cpu = 1000.0, 0.0
        self.requests, self.pieces, self.lines = 1, 0, 0
        self.stopped = False
        monkeypatch.setattr(hang, "cpu_seconds", lambda pid, tree: self.cpu)
        monkeypatch.setattr("arriero.trial.watch._is_stopped", lambda pid: self.stopped)
        self.clock = HangClock(1, 60.0, remote=remote)

    def passes(self, seconds: int, *, cpu: float = 0.0, every: int = 0) -> hang.Doubt | None:
        """Time in steps of a second; ``cpu`` seconds and a line ``every`` so many of them."""
        for second in range(1, seconds + 1):
            self.now += 1
            self.cpu += cpu
            if every and second % every == 0:
                self.lines += 1
            doubt = self.clock.look(self.now, self.requests, self.pieces, self.lines)
            if doubt is not None:
                return doubt
        return None


def test_nothing_at_all_is_a_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    assert world.passes(60) is None
    doubt = world.passes(10)
    assert doubt is not None
    assert not doubt.sure
    assert "no answer, log line or CPU time" in doubt.why


def test_threads_that_only_wait_are_no_sign_of_work(monkeypatch: pytest.MonkeyPatch) -> None:
    assert World(monkeypatch).passes(90, cpu=0.005) is not None


def test_a_long_prompt_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    assert world.passes(1000, cpu=1.0) is None
    assert world.passes(5000, every=50) is None


def test_computing_for_ever_without_a_word_is_a_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    doubt = World(monkeypatch).passes(3600, cpu=1.0)
    assert doubt is not None
    assert "though it computes" in doubt.why


def test_an_idle_engine_is_left_in_peace(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    world.requests = 0
    assert world.passes(3600) is None
    world.requests = 1
    assert world.passes(59) is None, "it counts from the request on"


def test_one_that_waits_for_workers_gets_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, remote=True)
    assert world.passes(290) is None
    assert world.passes(20) is not None


def test_a_stopped_process_is_sure_and_nobody_inside_is_blamed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch)
    world.requests, world.stopped = 0, True
    doubt = world.passes(10)
    assert doubt is not None
    assert doubt.sure
    assert doubt.outside


def test_what_has_shown_that_it_works_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    assert world.passes(70) is not None
    world.clock.restart(world.now)
    assert world.passes(60) is None


def test_reading_and_writing_show_that_a_model_is_fetched(tmp_path: Path) -> None:
    before = hang.moved(os.getpid())
    (tmp_path / "part").write_bytes(bytes(4 << 20))
    assert hang.moved(os.getpid()) > before


def test_a_process_that_is_gone_takes_no_time() -> None:
    assert hang.cpu_seconds(1 << 22) is None
    assert (hang.cpu_seconds(os.getpid(), tree=True) or 0) > 0
