"""Sizes by plans: the engine asked for all points at once, else the formulas."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from arriero.base.sizes import GIB
from arriero.base.words import Component
from arriero.command import Command, builtin_flags, parse_command
from arriero.engine.oracle import DryRun, EngineParams, Unanswered, dry_run
from arriero.experiment.diagnosis import PlannedForecast, Point
from arriero.gguf import Header, presets, read_header, write_model
from arriero.launch import launch_of
from arriero.launch.edits import with_context, with_slots
from arriero.machine import Pool
from arriero.memory import DryRuns, Planner, dry_runs

HOST = Pool("host", ("host",), 16 * GIB, 16 * GIB, "a test")
POINTS = [Point(slots, tokens) for slots in (1, 2, 7, 16) for tokens in (512, 4096, 20000)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    shape = presets.tiny("gemma3", layers=6)
    return write_model(tmp_path_factory.mktemp("models") / "swa.gguf", shape)


def command_of(model: Path, *args: str) -> Command:
    words = ["llama-server", "-m", str(model), "-c", "4096", "-np", "4", *args]
    return parse_command(words, builtin_flags(), dict(os.environ))


def planner(
    model: Path,
    server: Path,
    *args: str,
    pools: Sequence[Pool] = (HOST,),
    draft: Header | None = None,
) -> Planner:
    asked = None if "--rpc" in args else DryRuns(server.parent, command_of(model, *args).environ)
    header = read_header(model)
    return Planner(header, pools, model=model, answers=asked, build=10434, draft=draft)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many requests each dry run had, the real one behind it."""
    counts: list[int] = []

    def count(
        directory: Path, requests: Sequence[EngineParams], **kw: Any
    ) -> tuple[DryRun | Unanswered, ...]:
        counts.append(len(requests))
        return dry_run(directory, requests, **kw)

    monkeypatch.setattr(dry_runs, "dry_run", count)
    return counts


@pytest.mark.engine
def test_many_points_are_one_question_and_each_is_asked_once(
    model: Path, engine_path: Callable[[int], Path], asked: list[int]
) -> None:
    server = engine_path(10434)
    sizes = PlannedForecast(planner(model, server), command_of(model))
    totals = sizes.total(POINTS)
    assert asked == [len(POINTS)]
    assert sizes.total(POINTS[::-1]) == totals[::-1]
    assert sum(asked) == len(POINTS)
    requests = [
        launch_of(with_context(with_slots(command_of(model), p.slots), p.tokens), model).params
        for p in POINTS
    ]
    answers = dry_run(server.parent, requests, environ=dict(os.environ), timeout=60)
    for total, on_cpu, run in zip(totals, sizes.total(POINTS, "CPU"), answers, strict=True):
        assert isinstance(run, DryRun)
        assert on_cpu is not None
        assert total is not None
        buffers = sum(b.context + b.compute + b.output for b in run.buffers)
        # host memory that no size line shows differs a little from child to child
        assert abs(total - buffers - run.address_space_delta) < 4 << 20


def test_an_engine_that_does_not_answer_is_asked_once_and_formulas_go_on(
    model: Path, tmp_path: Path, asked: list[int]
) -> None:
    plans = planner(model, tmp_path / "static" / "llama-server")
    sizes = PlannedForecast(plans, command_of(model))
    totals = sizes.total(POINTS)
    assert plans.answers is None
    assert sizes.total(POINTS[:3]) == totals[:3]
    assert asked == [len(POINTS)]
    budget = Planner(read_header(model), [HOST], model=model, build=10434).quick(command_of(model))
    expected = sum(
        b.bytes or 0
        for b in budget.buffers
        if b.component in {*(Component.KV, Component.COMPUTE, Component.OUTPUT), Component.GRAPH}
    )
    assert sizes.total([Point(4, 4096)]) == [expected]


def test_the_memory_of_workers_is_not_the_host_s(model: Path, tmp_path: Path) -> None:
    worker = Pool("RPC0", ("RPC0",), GIB, GIB, "a test")
    args = ("--rpc", "127.0.0.1:50052", "--fit", "off")
    plans = planner(model, tmp_path / "llama-server", *args, pools=(HOST, worker))
    sizes = PlannedForecast(plans, command_of(model, *args))
    (here,), (there,) = sizes.total(POINTS[:1]), sizes.total(POINTS[:1], "RPC0")
    assert here is not None
    assert there is not None
    (plan,) = plans.plans([command_of(model, *args)])
    assert plan is not None
    kv = {b.device for b in plan.buffers if b.component is Component.KV}
    assert kv == {"RPC0"}
    growth = [
        b - a
        for device in (None, "RPC0")
        for a, b in [sizes.total([Point(4, 4096), Point(4, 8192)], device)]
        if a is not None and b is not None
    ]
    assert growth[1] > growth[0] > 0


def test_what_the_engine_would_refuse_has_no_size(model: Path, tmp_path: Path) -> None:
    plans = planner(model, tmp_path / "llama-server", "-dev", "CUDA7")
    assert plans.plans([command_of(model, "-dev", "CUDA7")]) == [None]
    assert (
        PlannedForecast(plans, command_of(model, "-dev", "CUDA7")).total(POINTS[:2]) == [None] * 2
    )


def test_a_draft_model_counts_where_its_file_can_be_read(model: Path, tmp_path: Path) -> None:
    server, args = tmp_path / "llama-server", ("-md", "draft.gguf")
    blind = planner(model, server, *args)
    seeing = planner(model, server, *args, draft=read_header(model))
    (without,), (with_it,) = (
        PlannedForecast(plans, command_of(model, *args)).total([Point(1, 4096)])
        for plans in (blind, seeing)
    )
    assert without is not None
    assert with_it is not None
    assert with_it > without
