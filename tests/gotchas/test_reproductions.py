"""A rule and its reproductions say the same: it finds the run and spares the control."""

from __future__ import annotations

from pathlib import Path

import pytest

from arriero.engine.devices import Refusal
from arriero.gguf import write_model
from arriero.gguf.projector import write_projector
from arriero.gotchas import registry
from arriero.gotchas.model import EngineRun, Reproduction, Severity
from arriero.gotchas.registry import Entry
from tests.gotchas.given import facts, unfit

HASWELL = frozenset({"AVX2"})
DEVICE = "  Vulkan0: llvmpipe (2048 MiB, 2048 MiB free)\n"
ALL = [(entry, one) for entry in registry().entries for one in entry.reproductions]


@pytest.mark.parametrize(("entry", "one"), ALL, ids=[f"{e.id}-{r.name}" for e, r in ALL])
def test_finds_the_run_and_spares_the_control(
    entry: Entry, one: Reproduction, tmp_path: Path
) -> None:
    model = write_model(tmp_path / "m.gguf", one.model, weights="zeros")
    mmproj = None
    if one.projector is not None:
        mmproj = write_projector(tmp_path / "mmproj.gguf", one.projector, weights="zeros")

    def found(run: EngineRun) -> int:
        workers = ",".join(f"127.0.0.1:{50052 + i}" for i in range(len(run.workers)))
        named = run.flags.partition("--rpc ")[2].split(" ")[0].format(workers=workers)
        answering = {name: name in workers.split(",") for name in named.split(",") if name}
        refused = {}
        for name, worker in zip(workers.split(","), run.workers, strict=False):
            if worker.skewed:
                answering[name], refused[name] = False, Refusal("4.0.3", fatal=False)
        flags = run.flags.format(workers=workers, model="MODEL", mmproj="MMPROJ").split()
        words = ["llama-server", "-m", "MODEL", *flags]
        shown = bool("-dev Vulkan0" in run.flags or run.workers)
        host = f"host={_room(run, model)}"
        budget = f"Vulkan0=2GiB,{host}" if shown else host
        for at, worker in enumerate(run.workers):
            if worker.room is not None:
                budget += f",RPC{at}={_taken(one.control, model, f'RPC{at}') + worker.room}"
        known = facts(
            words,
            model=model,
            mmproj=mmproj,
            budget=budget,
            env=dict(run.env),
            workers=answering,
            refused=refused,
            lacking=unfit(("AVX2",) if run.other_engine else ("AVX2", "AVX512"), HASWELL)
            if run.behind
            else None,
            devices=None if run.workers else DEVICE * shown,
        )
        return len(list(entry.detect(known)))

    assert found(one.run), "the rule does not find its own reproduction"
    assert not found(one.control), "the rule still finds it with the workaround"


def _room(run: EngineRun, model: Path) -> int:
    """What the run may take on the host, in bytes."""
    if run.above is None:
        return run.limit or 1 << 36
    words = ["llama-server", "-m", "MODEL", *run.above.split()]
    budget = "host=64GiB" + ",Vulkan0=2GiB" * ("-dev Vulkan0" in run.above)
    known = facts(words, model=model, budget=budget)
    return known.plan.pools[0].at_start + (run.limit or 0)


def _taken(control: EngineRun, model: Path, pool: str) -> int:
    """Bytes of a worker that serves the control."""
    flags = control.flags.format(workers="127.0.0.1:50052", model="MODEL").split()
    words = ["llama-server", "-m", "MODEL", *flags]
    known = facts(words, model=model, budget=f"{pool}=1TiB,host=64GiB")
    return next(p.at_start for p in known.plan.pools if p.name == pool)


def test_reproductions_are_many() -> None:
    """What is warned of has been seen; what is only told of may be a report about another build."""
    with_one = {entry.id for entry, _ in ALL}
    assert len(with_one) >= 55
    warned = {e.id for e in registry().entries if e.head.severity is not Severity.INFO}
    assert len(warned & with_one) >= 0.9 * len(warned)
