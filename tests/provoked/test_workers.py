"""RPC workers: gone, of another version, not there, and short of memory for a prompt's save."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from arriero.base.sizes import MIB
from arriero.base.words import Component, Evidence, Kind, Phase, TrialOutcome
from arriero.engine import Engine
from arriero.gguf.presets import tiny
from arriero.gguf.shape import Shape
from arriero.process import free_port
from arriero.trial import Workload
from tests.provoked.provoking import (
    QUIET_VULKAN,
    STEADY,
    Lab,
    Models,
    Provoked,
    wait_for,
    worker,
)

pytestmark = pytest.mark.engine

SMALL = ("-c", "1024", "-np", "1", "-ngl", "99", "--no-warmup")


def test_killed_between_requests(lab: Lab, models: Models) -> None:
    with worker(lab.engine) as (endpoint, process):

        def kill(log: Path) -> None:
            wait_for(log, "stop processing")
            process.kill()

        provoked = lab.run(
            models(tiny("llama")), *SMALL, "--rpc", endpoint,
            workload=Workload(prompts=2000), meanwhile=kill,
        )  # fmt: skip
    failure = provoked.failure
    assert provoked.trial.outcome is TrialOutcome.READY
    assert (failure.kind, failure.phase, failure.fatal) == (Kind.RPC, Phase.SERVING, True)
    assert failure.component in {None, Component.PROMPT_CACHE}
    assert provoked.trial.exit_status == -signal.SIGABRT


def test_alive(lab: Lab, models: Models) -> None:
    with worker(lab.engine) as (endpoint, _):
        control = lab.run(models(tiny("llama")), *SMALL, "--rpc", endpoint)
    assert control.trial.outcome is TrialOutcome.SERVED
    assert any(b.device.startswith("RPC") for b in control.trial.buffers)
    assert Kind.RPC not in {f.kind for f in control.trial.secondary}


@pytest.mark.parametrize("trouble", ["skewed", "not there"])
def test_dropped_in_silence(
    trouble: str, lab: Lab, models: Models, engine_of: Callable[[int], Engine]
) -> None:
    """The server runs on the CPU alone and serves as if nothing were wrong."""
    other = engine_of(10434 if lab.engine.build == 10068 else 10068)
    if trouble == "skewed":
        with worker(other) as (endpoint, _):
            provoked = lab.run(models(tiny("llama")), *SMALL, "--rpc", endpoint)
    else:
        endpoint = f"127.0.0.1:{free_port()}"
        provoked = lab.run(models(tiny("llama")), *SMALL, "--rpc", endpoint)
    trial = provoked.trial
    assert (trial.outcome, trial.failure) == (TrialOutcome.SERVED, None)
    assert not any(b.device.startswith("RPC") for b in trial.buffers)
    (dropped,) = trial.secondary
    assert (dropped.kind, dropped.fatal, dropped.evidence) == (Kind.RPC, False, Evidence.NAMED)
    says = "version mismatch" if trouble == "skewed" else "Failed to connect"
    assert says in dropped.text


WIDE_KV = Shape(
    arch="llama", name="wide-kv", layers=1, embedding=32, heads=512, heads_kv=512, head_dim=512,
    feed_forward=32,
)  # fmt: skip
"""512 KiB of keys for each token: the save of a short prompt moves tens of MiB."""


@pytest.mark.slow
def test_save_without_memory(lab: Lab, models: Models) -> None:
    """To hand over what is saved, the worker copies it first; without saves it has enough."""
    flags = ("-c", "256", "-b", "64", "-ub", "16", "-np", "1", "-ngl", "99", "--no-warmup")

    def run(limit: int | None, *more: str) -> tuple[Provoked, int]:
        steady = QUIET_VULKAN | STEADY
        with worker(lab.engine, env=steady, limit=limit) as (endpoint, process):
            provoked = lab.run(models(WIDE_KV), *flags, "--rpc", endpoint, *more)
            return provoked, address_space_peak(process)

    (without, enough), (_, wanted) = run(None, "-cram", "0"), run(None)
    assert without.trial.outcome is TrialOutcome.SERVED
    assert wanted - enough > 16 * MIB
    limit = (enough + wanted) // 2
    control, _ = run(limit, "-cram", "0")
    assert control.trial.outcome is TrialOutcome.SERVED
    provoked, _ = run(limit)
    failure = provoked.failure
    assert provoked.trial.outcome is TrialOutcome.READY
    assert (failure.kind, failure.phase, failure.fatal) == (Kind.RPC, Phase.SERVING, True)
    assert failure.component in {None, Component.PROMPT_CACHE}
    assert provoked.trial.exit_status == -signal.SIGABRT


def address_space_peak(process: psutil.Process) -> int:
    """Bytes; 0 once it has ended."""
    try:
        status = Path(f"/proc/{process.pid}/status").read_text()
    except OSError:
        return 0
    return int(status.partition("VmPeak:")[2].split()[0]) << 10
