"""A real engine compiled for AVX-512, met by a CPU without: qemu shows it on any machine."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from arriero.base.words import Kind
from arriero.gguf import write_model
from arriero.gguf.presets import tiny
from arriero.jobs import check, diagnose, plan, verify
from arriero.logs.model import Failure
from arriero.record import Check
from arriero.store import Store

HASWELL = ("qemu-x86_64", "-cpu", "Haswell")
pytestmark = [
    pytest.mark.engine,
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which(HASWELL[0]) is None, reason="needs qemu-user"),
]


@pytest.fixture
def stock(engine_path: Callable[[int], Path], tmp_path: Path) -> Path:
    """Build 10434 as its wheel has it, whatever the tests put in place of its CPU library."""
    place = tmp_path / "stock"
    shutil.copytree(engine_path(10434).parent, place, copy_function=os.link)
    kept = place / "libggml-cpu.so.wheel"
    if kept.exists():
        for other in place.glob("libggml-cpu.so*"):
            if other != kept:
                other.unlink()
                os.link(kept, other)
    return place / "llama-server"


@pytest.fixture
def words(stock: Path, tmp_path: Path) -> tuple[str, ...]:
    model = write_model(tmp_path / "m.gguf", tiny("llama"))
    flags = ("-c", "256", "-np", "1", "-ngl", "0", "--no-warmup")
    return (*HASWELL, str(stock), "-m", str(model), *flags)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "records.db")


def _is_named(failure: Failure | None) -> None:
    assert failure is not None
    assert (failure.kind, failure.component) == (Kind.ENVIRONMENT, None)
    assert failure.cpu is not None
    assert {"AVX2", "AVX512", "AVX_VNNI"} <= {*failure.cpu.needs}
    lacks = {*(failure.cpu.lacks or ())}
    assert {"AVX512", "AVX512_VNNI", "AVX512_BF16", "AVX_VNNI", "AMX_INT8"} <= lacks
    assert "AVX2" not in lacks


def test_diagnose_stops_after_one_launch(words: tuple[str, ...], store: Store) -> None:
    found = diagnose.diagnose(words, diagnose.DiagnoseOptions(), store=store)
    assert (found.launches, found.complete) == (1, True)
    assert found.verdict is not None
    _is_named(found.verdict.failure)
    assert found.recommendation is None
    assert any("0.10068.0" in note for note in found.notes)


def test_others_know_it_before_a_start(words: tuple[str, ...], store: Store) -> None:
    verified = verify.verify(words, verify.VerifyOptions(), store=store)
    assert (verified.verified, verified.trial) == (False, None)
    _is_named(verified.failure)

    planned = plan.plan(words, plan.PlanOptions(), store=store)
    _is_named(planned.failure)
    assert planned.context is not None, "what it takes is still planned"

    checked = check.check(words, check.CheckOptions())
    assert isinstance(checked, Check)
    (finding,) = [f for f in checked.findings if f.id == "cpu-not-supported"]
    assert (finding.severity, finding.applies) == ("error", "yes")


def test_an_engine_for_such_a_cpu_is_fine(
    words: tuple[str, ...], engine_path: Callable[[int], Path], store: Store
) -> None:
    fine = (*HASWELL, str(engine_path(10068)), *words[4:])
    assert plan.plan(fine, plan.PlanOptions(), store=store).failure is None
    checked = check.check(fine, check.CheckOptions())
    assert isinstance(checked, Check)
    assert "cpu-not-supported" not in {f.id for f in checked.findings}
