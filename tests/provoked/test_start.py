"""What does not fit at the start: each buffer by name, on a limit that the kernel keeps."""

from __future__ import annotations

import signal
from itertools import repeat
from pathlib import Path

import pytest

from arriero.base.sizes import GIB, MIB
from arriero.base.words import Component, Evidence, Kind, Phase, TrialOutcome
from arriero.gguf.presets import LADDER_DENSE, LADDER_HYBRID, tiny
from arriero.gguf.shape import Shape
from tests.provoked.provoking import Lab, Models, Provoked, first_named, named, named_or_inferred

pytestmark = pytest.mark.engine

LIMIT = 3670016 << 10
"""3.5 GiB: the buffers below that do not fit into it are larger than all of it."""
COLD = ("--no-warmup", "--threads-http", "2")


def provoke(lab: Lab, model: Path, *flags: str, limit: int) -> Provoked:
    run = lab.run
    provoked = first_named(repeat(lambda: run(model, *flags, *COLD, limit=limit), 12))
    assert provoked.trial.outcome is TrialOutcome.FAILED
    return provoked


def provoke_any(lab: Lab, model: Path, *flags: str, limit: int) -> Provoked:
    """The same where the log may lose its cause on every attempt; the assert itself never is."""
    run = lab.run
    provoked = named_or_inferred(repeat(lambda: run(model, *flags, *COLD, limit=limit), 4))
    assert provoked.trial.outcome is TrialOutcome.FAILED
    return provoked


def allocation(component: Component, size: int) -> dict[str, object]:
    return {
        "kind": Kind.ALLOCATION,
        "component": component,
        "device": "CPU",
        "bytes": size,
        "buffer_bytes": size,
        "phase": Phase.CONTEXT,
        "fatal": True,
        "evidence": Evidence.NAMED,
    }


def test_rs(lab: Lab, models: Models) -> None:
    hybrid = models(LADDER_HYBRID)
    provoked = provoke(lab, hybrid, "-c", "4096", "-np", "64", limit=LIMIT)
    assert named(provoked.failure) == allocation(Component.RS, 4020 * MIB)
    assert {"the KV cache", "the weights", "the model file"} <= set(provoked.failure.not_this)
    assert not {b.component for b in provoked.trial.buffers} & {Component.RS, Component.COMPUTE}
    assert all(f.phase is Phase.FIT for f in provoked.trial.secondary if f.kind is Kind.ALLOCATION)


def test_kv(lab: Lab, models: Models) -> None:
    dense = models(LADDER_DENSE)
    provoked = provoke(lab, dense, "-c", "16384", "-np", "1", limit=LIMIT)
    assert named(provoked.failure) == allocation(Component.KV, 4 * GIB)
    control = lab.run(dense, "-c", "256", "-np", "1", *COLD, limit=LIMIT)
    assert control.trial.outcome is TrialOutcome.SERVED


def test_compute(lab: Lab, models: Models) -> None:
    flags = ("-c", "32768", "-b", "32768", "-fa", "off", "-np", "1")
    provoked = provoke(lab, models(tiny("llama")), *flags, "-ub", "32768", limit=LIMIT)
    asked = provoked.figure(r"failed to allocate CPU buffer of size (\d+)")
    assert asked > LIMIT
    assert named(provoked.failure) == allocation(Component.COMPUTE, int(asked))
    assert {"the KV cache", "the weights"} <= set(provoked.failure.not_this)
    small = ("-c", "1024", "-fa", "off", "-np", "1")
    control = lab.run(models(tiny("llama")), *small, *COLD, limit=LIMIT)
    assert control.trial.outcome is TrialOutcome.SERVED


@pytest.mark.parametrize("fit", ["on", "off"])
def test_graph(fit: str, lab: Lab, models: Models) -> None:
    """Host memory for graph metadata grows with the micro-batch: 40 KiB for each of its tokens."""
    model = models(tiny("qwen35"))
    flags = ("-c", "4096", "-np", "1", "-fit", fit)
    limit = lab.ready_peak(model, *flags, *COLD) + 400 * MIB
    wide = ("-b", "2048", "-ub", "2048")
    provoked = provoke_any(lab, model, *flags, *wide, limit=limit)
    failure = provoked.failure
    assert (failure.kind, failure.component) == (Kind.ALLOCATION, Component.GRAPH)
    if failure.evidence is Evidence.NAMED:
        asked = provoked.figure(r"attempted to allocate ([\d.]+) MB")
        assert asked > 1500
        assert failure.bytes == pytest.approx(asked * MIB, abs=MIB)
    assert failure.phase is (Phase.FIT if fit == "on" else Phase.CONTEXT)
    assert failure.fatal
    assert provoked.trial.exit_status == -signal.SIGABRT
    assert "mem_buffer != NULL" in provoked.log
    if fit == "off":
        assert {"the KV cache", "the recurrent state"} <= set(failure.not_this)
        control = lab.run(model, *flags, *COLD, limit=limit)
        assert control.trial.outcome is TrialOutcome.SERVED


@pytest.mark.slow
@pytest.mark.parametrize(("below", "phase"), [(350, Phase.CONTEXT), (700, Phase.FIT)])
def test_graph_of_the_ladder(below: int, phase: Phase, lab: Lab, models: Models) -> None:
    """40 slots fit by every line that the engine prints, and it dies of what it never prints."""
    hybrid, flags = models(LADDER_HYBRID), ("-c", "4096", "-np", "40")
    limit = lab.ready_peak(hybrid, *flags, *COLD) - below * MIB
    provoked = provoke_any(lab, hybrid, *flags, limit=limit)
    failure = provoked.failure
    assert (failure.kind, failure.component, failure.phase) == (
        Kind.ALLOCATION,
        Component.GRAPH,
        phase,
    )
    if failure.evidence is Evidence.NAMED:
        assert failure.bytes == pytest.approx(394.82 * MIB, rel=0.05)
    assert provoked.trial.exit_status == -signal.SIGABRT
    if phase is Phase.CONTEXT:
        rs = [b.bytes for b in provoked.trial.buffers if b.component is Component.RS]
        assert rs == [2512.5 * MIB]


def zeros(models: Models) -> Path:
    """1.7 GiB of weights that take no disk."""
    shape = Shape(
        arch="llama", name="zeros", layers=8, embedding=2048, heads=16, heads_kv=4, head_dim=128,
        feed_forward=16384, vocab=512,
    )  # fmt: skip
    return models(shape, zeros=True)


def test_weights(lab: Lab, models: Models) -> None:
    flags, model = ("-c", "512", "-np", "1"), zeros(models)
    limit = lab.ready_peak(models(tiny("llama")), *flags, *COLD) + model.stat().st_size // 2
    provoked = provoke(lab, model, *flags, "--no-mmap", limit=limit)
    asked = int(provoked.figure(r"failed to allocate CPU buffer of size (\d+)"))
    expected = allocation(Component.WEIGHTS, asked) | {"phase": Phase.LOAD}
    assert named(provoked.failure) == expected


def test_mmap(lab: Lab, models: Models) -> None:
    flags, model = ("-c", "512", "-np", "1"), zeros(models)
    limit = lab.ready_peak(models(tiny("llama")), *flags, *COLD) + model.stat().st_size // 2
    provoked = provoke(lab, model, *flags, limit=limit)
    nothing = {"device": None, "bytes": None, "buffer_bytes": None, "phase": Phase.LOAD}
    assert named(provoked.failure) == allocation(Component.WEIGHTS, 0) | nothing
    assert "mmap failed" in provoked.failure.text


def test_output(lab: Lab, models: Models) -> None:
    """Many slots and a large vocabulary: one row of logits for each slot."""
    model = models(tiny("llama", name="wide", vocab=250_000, embedding=32), zeros=True)
    flags = ("-c", "4096")
    size = 4 * 256 * 250_000
    limit = lab.ready_peak(model, *flags, "-np", "1", *COLD) + size // 2
    provoked = provoke(lab, model, *flags, "-np", "256", limit=limit)
    failure = provoked.failure
    assert named(failure) == allocation(Component.OUTPUT, size) | {"bytes": failure.bytes} | {
        "buffer_bytes": failure.buffer_bytes
    }
    assert failure.bytes == pytest.approx(size, rel=0.001)
    control = lab.ready_peak(model, *flags, "-np", "16", *COLD)
    assert control < limit
