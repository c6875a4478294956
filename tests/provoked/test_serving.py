"""After "ready": memory refused in a request, a signal, a process that stands still."""

from __future__ import annotations

import signal
import sys

import pytest

from arriero.base.sizes import GIB, MIB
from arriero.base.words import Component, Evidence, Kind, Phase, TrialOutcome
from arriero.gguf.presets import LADDER_HYBRID, tiny
from arriero.gguf.shape import Shape
from arriero.trial import Workload, watch
from tests.provoked.provoking import Lab, Models, sends

assert sys.platform != "win32", "no such signals there"

pytestmark = pytest.mark.engine

HYBRID = ("-c", "1024", "-np", "4", "--no-warmup")
BUSY = Workload(prompts=2000)
"""Longer than any of these servers lives."""


@pytest.mark.parametrize(
    "room",
    [100, pytest.param(240, marks=pytest.mark.slow), pytest.param(320, marks=pytest.mark.slow)],
)
def test_bad_alloc(room: int, lab: Lab, models: Models) -> None:
    """Each request leaves a checkpoint of 63 MiB: ``room`` MiB hold few of them.

    The server answers 500 and stays up, or aborts: sometimes with its words, sometimes by an assert
    that is only the consequence of an exception.
    """
    hybrid = models(LADDER_HYBRID)
    limit = lab.ready_peak(hybrid, *HYBRID, env={}) + room * MIB
    provoked = lab.run(hybrid, *HYBRID, env={}, limit=limit, workload=Workload())
    failure, trial = provoked.failure, provoked.trial
    assert trial.outcome is TrialOutcome.READY
    assert trial.requests.failed > 0
    assert (failure.kind, failure.phase) == (Kind.RUNTIME_ALLOCATION, Phase.SERVING)
    assert failure.component in {None, Component.PROMPT_CACHE, Component.CHECKPOINTS}
    assert failure.fatal == (trial.exit_status is not None)
    if "bad_alloc" not in provoked.log:
        assert failure.evidence is Evidence.INFERRED


@pytest.mark.slow
def test_no_bad_alloc_without_caches(lab: Lab, models: Models) -> None:
    hybrid, spare = models(LADDER_HYBRID), ("-cram", "0", "-ctxcp", "0", "--threads-http", "2")
    limit = lab.ready_peak(hybrid, *HYBRID, *spare) + 100 * MIB
    control = lab.run(hybrid, *HYBRID, *spare, limit=limit)
    assert control.trial.outcome is TrialOutcome.SERVED


def slow_to_load() -> Shape:
    return Shape(
        arch="llama", name="zeros", layers=8, embedding=2048, heads=16, heads_kv=4, head_dim=128,
        feed_forward=16384, vocab=512,
    )  # fmt: skip


def test_killed_while_loading(lab: Lab, models: Models) -> None:
    model = models(slow_to_load(), zeros=True)
    assert model.stat().st_size > GIB
    kill = sends(signal.SIGKILL, model, "load_tensors:")
    provoked = lab.run(model, "-c", "512", "--no-mmap", "--no-warmup", meanwhile=kill)
    failure = provoked.failure
    assert provoked.trial.outcome is TrialOutcome.FAILED
    assert (failure.kind, failure.phase, failure.fatal) == (Kind.KILLED, Phase.LOAD, True)
    assert (failure.evidence, failure.component) == (Evidence.INFERRED, None)
    assert provoked.trial.exit_status == -signal.SIGKILL


def test_killed_while_serving(lab: Lab, models: Models) -> None:
    model = models(tiny("llama"))
    kill = sends(signal.SIGKILL, model, "stop processing")
    provoked = lab.run(model, "-c", "1024", "-np", "2", workload=BUSY, meanwhile=kill)
    failure = provoked.failure
    assert provoked.trial.outcome is TrialOutcome.READY
    assert (failure.kind, failure.phase, failure.fatal) == (Kind.KILLED, Phase.SERVING, True)
    assert (failure.evidence, failure.component) == (Evidence.INFERRED, None)


@pytest.mark.parametrize("phase", [Phase.LOAD, Phase.SERVING])
def test_stopped(phase: Phase, lab: Lab, models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_STOPPED_FOR", 0.5)
    if phase is Phase.LOAD:
        model = models(slow_to_load(), zeros=True)
        stop = sends(signal.SIGSTOP, model, "load_tensors:")
        flags = ["-c", "512", "--no-mmap", "--no-warmup"]
    else:
        model = models(tiny("llama"))
        stop = sends(signal.SIGSTOP, model, "stop processing")
        flags = ["-c", "1024", "-np", "2"]
    provoked = lab.run(model, *flags, workload=BUSY, meanwhile=stop)
    failure = provoked.failure
    assert (failure.kind, failure.phase, failure.fatal) == (Kind.HANG, phase, True)
    assert (failure.evidence, failure.component) == (Evidence.INFERRED, None)
    assert "stopped" in failure.text
    assert provoked.trial.exit_status is None
