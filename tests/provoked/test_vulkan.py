"""A device with memory of its own: a buffer is cut into chunks, and one chunk is what fails.

lavapipe, a Vulkan driver that runs on the CPU, allocates from this process's own address space, so
the same limit makes it fail with the words of a real card. Its tensors are at most 128 MiB.
"""

from __future__ import annotations

import signal
from itertools import repeat
from pathlib import Path

import pytest

from arriero.base.sizes import MIB
from arriero.base.words import Component, Evidence, Kind, Phase, TrialOutcome
from arriero.gguf.presets import LADDER_DENSE, LADDER_RECURRENT, tiny
from tests.provoked.provoking import (
    LAVAPIPE,
    ON_VULKAN,
    STEADY,
    Lab,
    Models,
    Provoked,
    first_named,
    named,
)

pytestmark = [pytest.mark.engine, pytest.mark.slow]

CHUNK = 128 * MIB
BLOCKS = STEADY | LAVAPIPE | {"GGML_VK_SUBALLOCATION_BLOCK_SIZE": str(CHUNK)}
COLD = (*ON_VULKAN, "--threads-http", "2")


def provoke(
    lab: Lab, model: Path, *flags: str, room: int, small: tuple[str, ...], says: str = ""
) -> Provoked:
    """``flags`` with ``room`` bytes more than what the same with ``small`` takes."""
    limit = lab.ready_peak(model, *flags, *small, *COLD, env=BLOCKS) + room
    run = lab.run
    again = repeat(lambda: run(model, *flags, *COLD, limit=limit, env=BLOCKS), 10)
    provoked = first_named(again, says)
    assert provoked.trial.outcome is TrialOutcome.FAILED
    return provoked


def allocation(component: Component, size: int, whole: int | None) -> dict[str, object]:
    return {
        "kind": Kind.ALLOCATION,
        "component": component,
        "device": "Vulkan0",
        "bytes": size,
        "buffer_bytes": whole,
        "phase": Phase.CONTEXT,
        "fatal": True,
        "evidence": Evidence.NAMED,
    }


@pytest.mark.parametrize("fit", ["on", "off"])
def test_rs(fit: str, lab: Lab, models: Models) -> None:
    """A chunk holds one layer of 16 slots; nothing in the log says the whole, 1037 MiB."""
    recurrent, flags = models(LADDER_RECURRENT), ("-c", "2048", "-np", "16", "-fit", fit)
    provoked = provoke(lab, recurrent, *flags, room=300 * MIB, small=("-np", "1"))
    assert named(provoked.failure) == allocation(
        Component.RS, 4 * 16 * (1 << 20) + 4 * 16 * 3 * 4608, None
    )


@pytest.mark.parametrize("level", ["4", "5"])
def test_kv(level: str, lab: Lab, models: Models) -> None:
    """Only verbosity 5 shows the dry run, which is where the whole is printed."""
    dense, flags = models(LADDER_DENSE), ("-c", "4096", "-np", "1", "-lv", level)
    provoked = provoke(lab, dense, *flags, room=300 * MIB, small=("-c", "256"))
    whole = 1024 * MIB if level == "5" else None
    assert named(provoked.failure) == allocation(Component.KV, CHUNK, whole)


def test_compute(lab: Lab, models: Models) -> None:
    """The allocator of graphs says the whole itself."""
    wide = models(tiny("llama", name="wide-ff", layers=2, embedding=64, feed_forward=16384))
    flags = ("-c", "4096", "-b", "2048", "-np", "1", "-fit", "off")
    refused = r"Device memory allocation of size (\d+) failed"
    provoked = provoke(
        lab, wide, *flags, "-ub", "2048", room=32 * MIB, small=("-ub", "32"), says=refused
    )  # fmt: skip
    whole = int(provoked.figure(r"failed to allocate Vulkan0 buffer of size (\d+)"))
    chunk = int(provoked.figure(refused))
    assert whole > chunk
    assert named(provoked.failure) == allocation(Component.COMPUTE, chunk, whole)


def test_host_buffer_of_a_device(lab: Lab, models: Models) -> None:
    """Pinned memory is refused and replaced by ordinary memory: what fails is the latter."""
    flags = ("-c", "8192", "-b", "8192", "-fa", "off", "-np", "1", "-fit", "off")
    provoked = provoke(
        lab, models(tiny("llama")), *flags, "-ub", "8192", room=128 * MIB, small=("-ub", "32")
    )  # fmt: skip
    failure = provoked.failure
    whole = int(provoked.figure(r"failed to allocate Vulkan_Host buffer of size (\d+)"))
    assert (failure.kind, failure.component) == (Kind.ALLOCATION, Component.COMPUTE)
    assert failure.buffer_bytes == whole
    assert (failure.phase, failure.fatal) == (Phase.CONTEXT, True)
    assert failure.device in {"CPU", "Vulkan_Host"}


SAVED = ("-c", "32768", "-np", "1")
"""Keys of one layer are 2 MiB: more than the small block."""


@pytest.mark.parametrize(
    ("block", "more", "dies"),
    [(MIB, (), True), (1024 * MIB, (), False), (MIB, ("-cram", "0"), False)],
)
def test_save_of_a_cut_buffer(
    block: int, more: tuple[str, ...], dies: bool, lab: Lab, models: Models
) -> None:
    env = STEADY | LAVAPIPE | {"GGML_VK_SUBALLOCATION_BLOCK_SIZE": str(block)}
    provoked = lab.run(models(tiny("llama")), *SAVED, *more, *ON_VULKAN, env=env)
    if not dies:
        assert provoked.trial.outcome is TrialOutcome.SERVED
        return
    failure = provoked.failure
    assert provoked.trial.outcome is TrialOutcome.READY
    assert (failure.kind, failure.component) == (Kind.CRASH, Component.PROMPT_CACHE)
    assert (failure.phase, failure.fatal) == (Phase.SERVING, True)
    assert "tensor not allocated" in failure.text
    assert provoked.trial.exit_status == -signal.SIGABRT
