"""Bounds for compute beside what engines reported, by what a device does."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from arriero.base.sizes import MIB
from arriero.base.words import Component
from arriero.engine.oracle import EngineParams
from arriero.gguf import Header, Shape, read_header, write_model
from arriero.memory.caches import cache_tensors, effective
from arriero.memory.compute import ComputeBound, Site
from arriero.memory.hparams import read_hparams
from arriero.memory.pools import parse_pools
from tests.memory.planning import plan

SEEN: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "compute.json").read_text())
DEVICE = "Vulkan0"
SITES = {
    "cpu": Site(devices=(), output=""),
    "ngl99": Site(devices=(DEVICE,), output=DEVICE, software=True),
    "half": Site(devices=(DEVICE,), output=DEVICE, on_host=True, software=True),
}


@pytest.fixture(scope="module")
def headers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Header]:
    home = tmp_path_factory.mktemp("m")
    return {
        name: read_header(write_model(home / name, Shape(**shape), weights="zeros"))
        for name, shape in SEEN["shapes"].items()
    }


def ratios(headers: dict[str, Header], run: dict[str, Any]) -> dict[str, float]:
    """Each bound as a multiple of what the engine reported for the same."""
    header, build = headers[run["model"]], run["build"]
    site = SITES[run["where"]]
    request = EngineParams(model=Path("m"), **run["request"], devices=site.devices)
    h = read_hparams(header, build)
    bound = ComputeBound(
        header,
        h,
        request,
        effective(h, request, build),
        cache_tensors(h, request, build),
        build=build,
    )
    found = bound.of(site)
    told = {"CPU" if name != DEVICE else name: size for name, size in run["compute"].items()}
    assert all(found[name].least <= size for name, size in told.items()), run
    return {name: found[name].most / size for name, size in told.items()}


@pytest.mark.parametrize("model", SEEN["shapes"])
def test_a_bound_is_never_below_what_is_taken(headers: dict[str, Header], model: str) -> None:
    for run in SEEN["runs"]:
        if run["model"] == model:
            assert min(ratios(headers, run).values()) >= 1, run


def test_a_bound_is_near_what_is_taken(headers: dict[str, Header]) -> None:
    alone = [ratios(headers, r)["CPU"] for r in SEEN["runs"] if r["where"] == "cpu"]
    beside = [ratios(headers, r)["CPU"] for r in SEEN["runs"] if r["where"] == "ngl99"]
    assert median(alone) < 1.3
    assert max(alone) < 4
    assert median(beside) < 3


@cache
def gemma(home: Path) -> Path:
    shape = Shape(
        arch="gemma3",
        layers=48,
        embedding=3840,
        heads=16,
        heads_kv=8,
        head_dim=256,
        feed_forward=15360,
        vocab=262208,
        window=1024,
        context_train=131072,
    )
    return write_model(home / "gemma.gguf", shape, weights="zeros")


@pytest.mark.parametrize(
    ("budget", "starts"), [("28700MiB", True), ("27200MiB", None), ("26000MiB", False)]
)
def test_a_card_that_others_filled(tmp_path: Path, budget: str, starts: bool | None) -> None:
    """A public log of a 12B model: KV 4320, compute 519.62 on ROCm0 and 68.51 on its host."""
    args = "-c 11520 -np 1 --swa-full -fa off -ngl 99"
    planned = plan(gemma(tmp_path), args, pools=parse_pools(f"ROCm0={budget},host=64GiB"))
    sizes = {(b.component, b.device): (b.bytes or 0) / MIB for b in planned.buffers}
    assert sizes[Component.KV, "ROCm0"] == 4320
    assert 519.62 <= sizes[Component.COMPUTE, "ROCm0"] < 700
    assert 68.51 <= sizes[Component.COMPUTE, "ROCm_Host"] < 90
    assert planned.starts is starts
    assert planned.fits is (False if starts is False else None)
