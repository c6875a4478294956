"""The procedure of a diagnosis with the real engine, on a model whose state is dominant."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from arriero.base.sizes import MIB
from arriero.base.words import Component, Kind, LimitKind, TrialOutcome
from arriero.experiment.diagnosis import boundary
from arriero.gguf import presets, write_model
from arriero.jobs import _bench
from arriero.jobs import diagnose as job
from arriero.process import Limit
from arriero.record import Diagnosis
from arriero.store import Store
from tests.limits import above

pytestmark = pytest.mark.engine

MANY = "128"
SERVED = TrialOutcome.SERVED
FEW = ("--no-warmup", "--threads-http", "2")
"""Threads for HTTP are as many as slots or cores, and each takes address space."""
RUN = Callable[..., Diagnosis]


@pytest.fixture(scope="module")
def hybrid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """16 recurrent layers with 1 MiB of state each: a slot costs more than everything else."""
    shape = presets.tiny("qwen35", layers=16, ssm_state=64, ssm_heads=64, embedding=256)
    return write_model(tmp_path_factory.mktemp("models") / "hybrid.gguf", shape)


@pytest.fixture
def run(tmp_path: Path, engine_path: Callable[[int], Path]) -> RUN:
    def diagnose(model: Path, *flags: str, **options: object) -> Diagnosis:
        words = ["llama-server", "-m", str(model), *FEW, *flags]
        options = {"engine": str(engine_path(10434)), "requests": 8, **options}
        chosen = job.DiagnoseOptions(**options)  # type: ignore[arg-type]
        return job.diagnose(words, chosen, store=Store(tmp_path / "home"), environ=os.environ)

    return diagnose


@pytest.fixture
def tight(hybrid: Path, engine_path: Callable[[int], Path]) -> Limit:
    """What one slot takes here and 16 times as much state again.

    The state of MANY slots is more than that and all that comes after it, so that it is what fails,
    whatever else a CPU library or a number of cores takes.
    """
    size = above(engine_path(10434), hybrid, f"-c 512 -np 1 {' '.join(FEW)}", 256 * MIB)
    return Limit(size, LimitKind.ADDRESS_SPACE)


def test_every_claim_is_shown_by_a_trial(run: RUN, hybrid: Path, tight: Limit) -> None:
    found = run(hybrid, "-c", "512", "-np", MANY, limit=tight)
    trials = {trial.n: trial for trial in found.trials}
    assert found.complete
    assert found.launches == len(trials)
    assert found.verdict is not None
    assert (found.verdict.kind, found.verdict.component) == (Kind.ALLOCATION, Component.RS)
    assert found.verdict.trial == 2
    assert trials[2].change == {}
    edge = found.boundary["-np"]
    runs = [(trials[n].change["-np"][1], trials[n].outcome) for n in edge.trials]
    served = [n for n, run in zip(edge.trials, runs, strict=True) if run == (edge.served, SERVED)]
    left = trials[served[0]].headroom
    assert len(served) >= 2 or (left or 0) >= 8 * MIB, "near an edge one run proves little"
    assert (edge.fails, TrialOutcome.FAILED) in runs
    assert edge.served is not None
    assert edge.fails is not None
    assert edge.ready is not None
    assert edge.served <= edge.ready < edge.fails <= edge.ready + 3
    for number in edge.trials:
        moved = set(trials[number].change) - {"-np", *edge.held}
        assert not moved, f"trial {number} changed {moved} too"
    advice = found.recommendation
    assert advice is not None
    assert advice.verified
    assert advice.trial is not None
    assert trials[advice.trial].outcome is TrialOutcome.SERVED
    assert advice.worst_case.fits
    assert {slope.component for slope in found.slopes} >= {Component.RS, Component.KV}


@pytest.mark.slow
def test_the_start_as_given_is_left_out_where_its_failure_is_known(
    run: RUN, hybrid: Path, tmp_path: Path, tight: Limit
) -> None:
    log = tmp_path / "failed.log"
    log.write_text(
        "ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate buffer of size 4215275520\n"
        "llama_init_from_model: failed to initialize the context:"
        " failed to allocate buffer for rs cache\n"
    )
    found = run(hybrid, "-c", "512", "-np", "4", limit=tight, from_log=log)
    assert found.verdict is not None
    assert found.verdict.component is Component.RS
    assert found.verdict.trial is None
    assert all(trial.change for trial in found.trials[:-1])


def test_nothing_is_started_that_could_take_the_machine_down(
    run: RUN, hybrid: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_bench, "free_host_memory", lambda _: 512 << 20)
    found = run(hybrid, "-c", "512", "-np", "32")
    assert found.launches == 1
    assert found.verdict is None
    assert any("--as-given" in note for note in found.notes)
    assert run(hybrid, "-c", "512", "-np", "32", as_given=True).launches > 1


def test_not_even_the_smallest_start_may_take_the_machine_down(
    run: RUN, hybrid: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_bench, "free_host_memory", lambda _: 16 << 20)
    found = run(hybrid, "-c", "512", "-np", "1")
    assert (found.launches, found.verdict) == (0, None)
    assert any("even one slot" in note and "--limit" in note for note in found.notes)
    assert any("--as-given" in item for item in found.not_tried)


def wrapper(path: Path, engine: Path, before: str) -> Path:
    """An engine that runs a line of shell before it starts a model."""
    path.write_text(f'#!/bin/sh\ncase " $* " in *" -m "*) {before};; esac\nexec {engine} "$@"\n')
    path.chmod(0o755)
    return path


def test_a_start_is_cut_off_when_the_time_is_over(
    hybrid: Path, tmp_path: Path, engine_path: Callable[[int], Path]
) -> None:
    engine = wrapper(tmp_path / "llama-server", engine_path(10434), "exec sleep 600")
    found = job.diagnose(
        ["llama-server", "-m", str(hybrid)],
        job.DiagnoseOptions(engine=str(engine), max_time=3.0),
        store=Store(tmp_path / "home"),
    )
    assert not found.complete
    assert found.verdict is None
    (trial,) = found.trials
    assert not trial.valid
    assert trial.why_invalid == "cut off: --max-time ran out"
    assert any("--max-time" in note for note in found.notes)


def test_a_baseline_whose_cause_was_lost_runs_once_more(
    hybrid: Path, tmp_path: Path, engine_path: Callable[[int], Path]
) -> None:
    """The engine's logger may lose its last lines: here they go nowhere the first time."""
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(hybrid.read_bytes()[: 1 << 16])
    once = f"test -e {tmp_path}/once || {{ touch {tmp_path}/once; exec >/dev/null 2>&1; }}"
    engine = wrapper(tmp_path / "llama-server", engine_path(10434), once)
    found = job.diagnose(
        ["llama-server", "-m", str(bad)],
        job.DiagnoseOptions(engine=str(engine)),
        store=Store(tmp_path / "home"),
    )
    assert found.verdict is not None
    assert (found.verdict.kind, found.verdict.trial) == (Kind.MODEL, 2)


@pytest.mark.slow
def test_a_slow_model_is_searched_without_its_weights(
    run: RUN, hybrid: Path, monkeypatch: pytest.MonkeyPatch, tight: Limit
) -> None:
    monkeypatch.setattr(boundary, "TYPICAL_LAUNCHES", 10**6)
    found = run(hybrid, "-c", "512", "-np", MANY, limit=tight, max_time=600.0)
    trials = {trial.n: trial for trial in found.trials}
    edge = found.boundary["-np"]
    searched = [trials[n] for n in edge.trials]
    assert any("-m" in trial.change or "--model" in trial.change for trial in searched)
    real = [t for t in searched if t.purpose.endswith("confirmed with weights")]
    serving, failing = real
    # a slot from the edge the real one may end otherwise on a busy machine: nothing is claimed then
    served = serving.change["-np"][1] if serving.outcome is TrialOutcome.SERVED else None
    assert edge.served == served
    assert ("did not confirm" in edge.note) == (served is None)
    assert failing.outcome is TrialOutcome.FAILED
    assert failing.change["-np"][1] == edge.fails
    assert any("without weights" in note for note in found.notes)


def test_a_budget_leaves_a_valid_record_that_is_not_complete(
    run: RUN, hybrid: Path, tight: Limit
) -> None:
    found = run(hybrid, "-c", "512", "-np", MANY, limit=tight, max_launches=3)
    assert not found.complete
    assert found.launches == 3
    assert found.verdict is not None
    edge = found.boundary.get("-np")  # a start that lost its cause is repeated: no launch is left
    assert edge is None or edge.served is None


def test_a_refused_option_needs_one_start(run: RUN, hybrid: Path) -> None:
    found = run(hybrid, "-c", "512", "-np", "4", "--no-such-option")
    assert found.launches == 1
    assert found.verdict is not None
    assert found.verdict.kind is Kind.CONFIG


def test_a_command_that_serves_is_kept(run: RUN, hybrid: Path) -> None:
    found = run(hybrid, "-c", "512", "-np", "2", "-cram", "64", "-ctxcp", "2", requests=40)
    assert (found.verdict, found.launches) == (None, 2)
    assert found.recommendation is not None
    assert found.recommendation.verified
    assert found.recommendation.requests.ok >= 40
    assert found.recommendation.changes == ()
    assert found.recommendation.worst_case.fits
