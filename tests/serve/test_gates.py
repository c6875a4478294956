"""What is changed in a command before its start, and why."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.base.sizes import GIB, MIB
from arriero.base.words import Component
from arriero.command import Command, builtin_flags, parse_command
from arriero.gguf import read_header, write_model
from arriero.gguf.presets import LADDER_DENSE, LADDER_HYBRID
from arriero.gguf.shape import Shape
from arriero.memory import Planner, parse_pools
from arriero.record import EngineRecord, Plan, Probe
from arriero.serve.gates import (
    bounded_caches,
    saves_known_to_fail,
    saves_not_risked,
    saves_off,
)
from arriero.serve.probe import at_risk

RESERVE = 256 * MIB


def command(text: str) -> Command:
    return parse_command(["llama-server", *text.split()], builtin_flags(), {})


@cache
def dense() -> Path:
    home = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    return write_model(home / "dense.gguf", LADDER_DENSE, weights="zeros")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    home = tmp_path_factory.mktemp("models")
    shapes: dict[str, Shape] = {"dense": LADDER_DENSE, "hybrid": LADDER_HYBRID}
    return {
        name: write_model(home / f"{name}.gguf", shape, weights="zeros")
        for name, shape in shapes.items()
    }


def planner(path: Path, pools: str) -> Planner:
    return Planner(read_header(path), parse_pools(pools), model=path)


def grown(plan: Plan) -> int:
    kinds = {Component.PROMPT_CACHE, Component.CHECKPOINTS}
    assert all(b.bytes is not None for b in plan.buffers if b.component in kinds)
    return sum(b.bytes or 0 for b in plan.buffers if b.component in kinds)


@pytest.mark.parametrize("model", ["dense", "hybrid"])
@pytest.mark.parametrize("text", ["-c 4096 -np 2", "-c 4096 -cram -1", "-c 4096 -cram 90000"])
@pytest.mark.parametrize("free", ["2GiB", "3GiB", "6GiB"])
def test_caches_cannot_outgrow_the_pool(
    model: str, text: str, free: str, models: dict[str, Path]
) -> None:
    plans = planner(models[model], f"host={free}")
    asked = command(f"-m {models[model]} {text}")
    before = plans.quick(asked)
    found = bounded_caches(asked, before, RESERVE)
    if found is None:
        assert before.outgrows is not True
        return
    changed, gate = found
    after = plans.quick(changed)
    assert after.outgrows is False
    (pool,) = after.pools
    assert pool.free is not None
    held = pool.at_start + grown(after) + max(pool.margin, RESERVE)
    assert held <= pool.free or grown(after) == 0
    assert gate.change.startswith("-c")
    assert "host has" in gate.why


def test_at_least_one_of_these_was_capped(models: dict[str, Path]) -> None:
    asked = command(f"-m {models['dense']} -c 4096")
    found = bounded_caches(asked, planner(models["dense"], "host=3GiB").quick(asked), RESERVE)
    assert found is not None
    assert found[1].change.startswith("-cram default -> ")


def test_what_has_room_is_left_alone(models: dict[str, Path]) -> None:
    asked = command(f"-m {models['dense']} -c 4096")
    plan = planner(models["dense"], "host=64GiB").quick(asked)
    assert bounded_caches(asked, plan, RESERVE) is None


def test_a_reserve_above_the_margin_is_kept(models: dict[str, Path]) -> None:
    asked = command(f"-m {models['dense']} -c 4096")
    plans = planner(models["dense"], "host=8GiB")
    found = bounded_caches(asked, plans.quick(asked), 4 * GIB)
    assert found is not None
    (pool,) = plans.quick(found[0]).pools
    assert pool.headroom is not None
    assert pool.headroom >= 4 * GIB


@given(st.integers(min_value=64, max_value=9000), st.integers(min_value=-1, max_value=100_000))
def test_a_cap_is_never_above_what_was_asked(free: int, mib: int) -> None:
    asked = command(f"-m {dense()} -c 1024 -cram {mib}")
    plan = planner(dense(), f"host={free}MiB").quick(asked)
    found = bounded_caches(asked, plan, RESERVE)
    if found is not None:
        cap = found[0].number("-cram")
        assert cap is not None
        assert cap >= 0
        assert mib < 0 or cap <= mib


# --- saves --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "text", "pools", "wanted"),
    [
        ("dense", "-ngl 99", "Vulkan0=24GiB,host=64GiB", ("Vulkan0",)),
        ("dense", "-ngl 99 -cram 0", "Vulkan0=24GiB,host=64GiB", ()),
        ("dense", "-ngl 99 -nkvo", "Vulkan0=24GiB,host=64GiB", ()),
        ("dense", "-ngl 0", "Vulkan0=24GiB,host=64GiB", ()),
        ("dense", "-ngl 99", "host=64GiB", ()),
        ("hybrid", "-ngl 99 -cram 0", "Vulkan0=24GiB,host=64GiB", ("Vulkan0",)),
        ("hybrid", "-ngl 99 -cram 0 -ctxcp 0", "Vulkan0=24GiB,host=64GiB", ()),
    ],
)
def test_where_a_save_would_read_from(
    model: str, text: str, pools: str, wanted: tuple[str, ...], models: dict[str, Path]
) -> None:
    asked = command(f"-m {models[model]} -c 4096 {text}")
    assert at_risk(asked, planner(models[model], pools).quick(asked)) == wanted


def probe(outcome: str, change: dict[str, str]) -> Probe:
    return Probe(
        id="probe-1",
        at="",
        outcome=outcome,  # type: ignore[arg-type]
        change=change,
        why="GGML_ASSERT",
        engine=EngineRecord(
            path="llama-server", found_by="PATH", version="1", build=1, commit=None, backends=()
        ),
    )


def test_what_broke_is_turned_off() -> None:
    asked = command("-m m.gguf --cache-ram 512")
    found = saves_off(asked, ("Vulkan0",), probe("broke", {"-cram": "0", "-ctxcp": "0"}))
    assert found is not None
    changed, gate = found
    assert changed.text() == "llama-server -m m.gguf --cache-ram 0 -ctxcp 0"
    assert gate.change == "-cram 512 -> 0, -ctxcp default -> 0"
    assert "Vulkan0" in gate.why
    assert "GGML_ASSERT" in gate.why


@pytest.mark.parametrize("outcome", ["held", "could not run"])
def test_what_held_is_left_on(outcome: str) -> None:
    assert saves_off(command("-m m.gguf"), ("Vulkan0",), probe(outcome, {})) is None


def test_what_is_off_already_is_no_gate() -> None:
    asked = command("-m m.gguf -cram 0")
    assert saves_known_to_fail(asked, ("RPC0",), "x") is None
    assert saves_not_risked(asked, ("RPC0",), "x") is None


def test_a_gotcha_turns_saves_off() -> None:
    for gate in (saves_known_to_fail, saves_not_risked):
        found = gate(command("-m m.gguf"), ("RPC0",), "it was seen")
        assert found is not None
        assert found[0].value("-cram") == "0"
        assert found[1].why.endswith("it was seen")
