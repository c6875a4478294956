"""What fit settles on, by a made-up account of memory."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.memory.fit import Fitted, Placement, Setup, Used, fitted, said_of_fit
from arriero.memory.placement import CPU, layer_devices

LAYERS = 12
DENSE, EXPERTS, CACHE, FIXED = 50, 300, 2, 1000
"""Bytes of a layer without its experts, of its experts, per token in all, and of each device."""


def measuring(setup: Setup) -> Callable[[int, Placement | None], Used]:
    def measure(tokens: int, placed: Placement | None) -> Used:
        placed = placed or Placement(-1)
        where = layer_devices(LAYERS, placed.n_gpu_layers, setup.devices, placed.tensor_split)
        used = dict.fromkeys(setup.devices or (CPU,), FIXED)
        model = 0
        for il, device in enumerate(where):
            parts = {device: DENSE}
            if setup.has_experts and il < LAYERS:
                name = f"blk.{il}.ffn_down_exps.weight"
                to = next((b for p, b in placed.overrides if re.search(p, name)), device)
                parts[to] = parts.get(to, 0) + EXPERTS
            for to, size in parts.items():
                used[to] = used.get(to, 0) + size
                model += size * (to in setup.devices)
            used[device] = used.get(device, 0) + CACHE * tokens // (LAYERS + 1)
        return Used(tuple(used[name] for name in setup.devices or (CPU,)), model)

    return measure


def setup(*free: int, devices: int | None = None, experts: bool = False, fixed: str = "") -> Setup:
    count = len(free) if devices is None else devices
    return Setup(
        devices=tuple(f"CUDA{i}" for i in range(count)),
        free=free,
        targets=(100,) * len(free),
        most=65536,
        least=4096,
        step=256,
        n_layer=LAYERS,
        has_experts=experts,
        fixed=fixed,
    )


def fit(made: Setup) -> Fitted:
    found = fitted(made, measuring(made))
    assert found is not None
    return found


def all_of(made: Setup, tokens: int) -> int:
    return sum(measuring(made)(tokens, None).bytes)


def test_what_fits_stays() -> None:
    made = setup(1 << 20)
    assert fit(made) == Fitted(65536)
    assert said_of_fit(made, fit(made), context_given=False) == ""


@pytest.mark.parametrize("devices", [0, 1])
def test_less_room_is_less_context_rounded_down(devices: int) -> None:
    made = setup(1 << 20, devices=devices)
    enough = all_of(made, 65536) + 100
    assert fit(replace(made, free=(enough,))).n_ctx == 65536
    assert fit(replace(made, free=(enough - 1,))).n_ctx == 65536 - 256
    room = replace(made, free=(all_of(made, 20000) + 120,))
    assert fit(room) == Fitted(20000 // 256 * 256)
    assert said_of_fit(room, fit(room), context_given=False) == (
        "--fit will take a context of 19968 tokens instead of 65536."
    )


def test_without_devices_it_gives_up_with_the_least_context() -> None:
    made = setup(10, devices=0)
    found = fit(made)
    assert (found.n_ctx, found.placement) == (4096, None)
    assert "give up (a smaller context is not enough)" in said_of_fit(
        made, found, context_given=False
    )


def test_layers_that_do_not_fit_go_to_the_host() -> None:
    made = replace(setup(5000), most=8192, least=8192)
    found = fit(made)
    assert found.placement is not None
    layers = found.placement.n_gpu_layers
    measure = measuring(made)
    assert measure(8192, Placement(layers)).bytes[0] <= 4900
    assert measure(8192, Placement(layers + 1)).bytes[0] > 4900
    assert said_of_fit(made, found, context_given=True) == (
        f"--fit will move {13 - layers} of 13 layers to the CPU."
        " It does not lower -c, because you set it."
    )


def test_a_device_without_any_room_gets_no_layer() -> None:
    found = fit(replace(setup(0), most=4096, least=4096))
    assert found.placement == Placement(0)


def test_what_the_command_fixes_makes_it_give_up() -> None:
    made = setup(2000, fixed="-ngl is set to 99")
    found = fit(made)
    # a context that it reduced before stays reduced
    assert (found.n_ctx, found.placement, found.gave_up) == (4096, None, made.fixed)


def test_devices_are_taken_together_and_filled_from_the_last() -> None:
    made = replace(setup(30000, 30000), most=32768, least=32768)
    found = fit(made)
    assert found.placement is not None
    first, last = found.placement.tensor_split
    assert 0 < first <= last
    used = measuring(made)(32768, found.placement)
    assert max(used.bytes) <= 29900
    roomy = setup(40000, 40000)
    half = fit(replace(roomy, free=(all_of(roomy, 30000) // 2 + 100,) * 2))
    assert 4096 < half.n_ctx < 30000


def test_experts_go_to_the_host_before_layers_do() -> None:
    made = replace(setup(12000, experts=True), most=4096, least=4096)
    found = fit(made)
    assert found.placement is not None
    assert found.placement.n_gpu_layers == 13
    first, *others = found.placement.overrides
    assert [buffer for _, buffer in found.placement.overrides] == [CPU] * (len(others) + 1)
    # the whole layers are in front
    assert re.match(r"blk\\\.(\d+)", first[0])
    assert measuring(made)(4096, found.placement).bytes[0] <= 11900


SIZES = st.lists(st.integers(0, 30000), min_size=1, max_size=3)


@given(SIZES, st.booleans(), st.booleans())
def test_whatever_the_room_it_ends_and_fills_no_device_beyond(
    free: list[int], experts: bool, given_context: bool
) -> None:
    made = setup(*free, experts=experts)
    if given_context:
        made = replace(made, least=made.most)
    found = fit(made)
    assert made.least <= found.n_ctx <= made.most
    if found.placement is None:
        return
    assert 0 <= found.placement.n_gpu_layers <= LAYERS + 1
    used = measuring(made)(found.n_ctx, found.placement)
    empty = measuring(made)(found.n_ctx, Placement(0, (0.0,) * len(free)))
    for taken, nothing, room in zip(used.bytes, empty.bytes, made.free, strict=True):
        assert taken <= max(room - 100, nothing)


def test_nothing_is_said_where_nothing_is_known() -> None:
    assert fitted(setup(1), lambda _tokens, _placed: None) is None
