"""Plans: lines, methods, pools, verdicts; no engine."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arriero.base.errors import ArrieroError, UsageError
from arriero.base.sizes import GIB, MIB
from arriero.base.words import Component, Method
from arriero.command import builtin_flags, parse_command
from arriero.engine import ListedDevice
from arriero.gguf import Header, read_header, write_model
from arriero.gguf.presets import tiny
from arriero.machine import Pool
from arriero.machine.host import ULIMIT
from arriero.memory import Planner
from arriero.memory.calibration import Calibration
from arriero.memory.pools import parse_pools
from arriero.record import Plan, PlanBuffer, decode, encode
from tests.memory.planning import ROOMY, plan

DATA = Path(__file__).parents[1] / "data" / "archs"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    home = tmp_path_factory.mktemp("m")
    return {arch: write_model(home / arch, tiny(arch)) for arch in ("llama", "qwen35", "gemma3")}


def lines(planned: Plan, component: Component) -> dict[str, PlanBuffer]:
    return {b.device: b for b in planned.buffers if b.component is component}


def test_every_line_has_a_method_and_a_pool(models: dict[str, Path]) -> None:
    planned = plan(models["qwen35"], "-c 4096 -np 2", build=10434)
    assert {b.component for b in planned.buffers} == {
        Component.WEIGHTS,
        Component.KV,
        Component.RS,
        Component.COMPUTE,
        Component.OUTPUT,
        Component.GRAPH,
        Component.PROMPT_CACHE,
        Component.CHECKPOINTS,
    }
    exact = {Component.WEIGHTS, Component.KV, Component.RS, Component.OUTPUT}
    for buffer in planned.buffers:
        if buffer.component in exact:
            assert (buffer.method, buffer.upper_bound) == (Method.EXACT, False)
    (pool,) = planned.pools
    assert pool.planned == sum(b.bytes or 0 for b in planned.buffers)
    assert (pool.fits, planned.fits) == (True, True)
    assert decode(encode(planned), "a test") == planned


def test_plain_attention_makes_no_checkpoints(models: dict[str, Path]) -> None:
    assert not lines(plan(models["llama"], "-c 4096"), Component.CHECKPOINTS)
    assert lines(plan(models["gemma3"], "-c 4096"), Component.CHECKPOINTS)
    assert not lines(plan(models["gemma3"], "-c 4096 --swa-full"), Component.CHECKPOINTS)
    assert not lines(plan(models["gemma3"], "-c 4096 -ctxcp 0"), Component.CHECKPOINTS)


def test_what_a_turn_of_a_chat_adds_is_told(models: dict[str, Path]) -> None:
    for flags, turn in (("", 4), (" -ctxcp 3", 3)):
        line = lines(plan(models["qwen35"], "-c 4096 -np 2" + flags), Component.CHECKPOINTS)["CPU"]
        assert line.reason.startswith(f"a turn of a chat adds up to {turn} of ")


def test_host_caches_are_growth_and_can_be_without_limit(models: dict[str, Path]) -> None:
    planned = plan(models["qwen35"], "-c 4096 -cram 100 -ctxcp 2 -np 3")
    cache = lines(planned, Component.PROMPT_CACHE)["CPU"]
    assert (cache.bytes, cache.upper_bound) == (100 * MIB, True)
    kept = lines(planned, Component.CHECKPOINTS)["CPU"].bytes or 0
    assert planned.pools[0].planned - planned.pools[0].at_start == 100 * MIB + kept
    endless = plan(models["qwen35"], "-c 4096 -cram -1")
    assert lines(endless, Component.PROMPT_CACHE)["CPU"].method is Method.UNKNOWN
    assert endless.fits is None
    assert not lines(plan(models["qwen35"], "-cram 0"), Component.PROMPT_CACHE)


@pytest.mark.parametrize(
    ("free", "fits", "starts"),
    [(None, None, None), (1 << 40, True, True), (64 * MIB, None, True), (0, False, False)],
)
def test_a_pool_fits_with_its_margin_only(
    models: dict[str, Path], free: int | None, fits: bool | None, starts: bool | None
) -> None:
    pool = Pool("host", ("host",), free, free, "a test")
    planned = plan(models["llama"], "-c 4096 -cram 0", pools=[pool])
    assert (planned.pools[0].fits, planned.fits) == (fits, fits)
    assert (planned.pools[0].starts, planned.starts) == (starts, starts)
    just = planned.pools[0].planned + 256 * MIB
    barely = Pool("host", ("host",), just, just, "a test")
    assert plan(models["llama"], "-c 4096 -cram 0", pools=[barely]).fits is True
    short = replace(barely, free=just - 1)
    without = plan(models["llama"], "-c 4096 -cram 0", pools=[short])
    assert (without.fits, without.starts, without.outgrows) == (None, True, False)


def test_a_bound_alone_is_no_verdict(models: dict[str, Path]) -> None:
    args = "-c 4096 -np 1 -cram 0 --no-mmap --no-repack"
    (whole,) = plan(models["llama"], args).pools
    assert 0 < whole.surely < whole.at_start
    for free, starts in (
        (whole.surely - 1, False),
        (whole.surely, None),
        (whole.at_start - 1, None),
        (whole.at_start, True),
    ):
        pool = Pool("host", ("host",), free, free, "a test")
        planned = plan(models["llama"], args, pools=[pool])
        assert (planned.starts, planned.fits) == (starts, False if starts is False else None)


@pytest.mark.parametrize("limit", [100, 4000])
def test_what_can_outgrow_a_pool_says_when(models: dict[str, Path], limit: int) -> None:
    pool = Pool("host", ("host",), GIB, GIB, "a test")
    args = f"-c 4096 -np 1 -cram {limit} -ctxcp 0"
    planned = plan(models["qwen35"], args, pools=[pool])
    assert (planned.starts, planned.outgrows) == (True, limit > 1000)
    (grown,) = planned.pools[0].growth
    assert (grown.component, grown.flag) == (Component.PROMPT_CACHE, "-cram")
    room = GIB - planned.pools[0].at_start
    assert grown.each is not None
    if limit > 1000:
        assert grown.enough is not None
        assert (grown.enough - 1) * grown.each <= room < grown.enough * grown.each
    else:
        assert grown.enough is None


def test_what_others_measured_on_cuda_is_an_estimate_with_its_source(
    models: dict[str, Path],
) -> None:
    def terms(name: str, listed: tuple[ListedDevice, ...] = ()) -> list[PlanBuffer]:
        device = Pool(name, (name,), 1 << 40, 1 << 40, "a test", listed=listed)
        planned = plan(models["llama"], "-c 4096 -np 1", pools=[ROOMY, device])
        return [b for b in planned.buffers if b.component is Component.POOL and b.bytes]

    told = terms("CUDA0")
    assert {b.method for b in told} == {Method.ESTIMATED}
    assert all("measured by others, not verified here" in b.reason for b in told)
    assert 296 * MIB in {b.bytes for b in told}
    assert [b.bytes for b in told if b.grows] == [12 * MIB]
    # its free memory was read by a process that had a context already
    seen = terms("CUDA0", (ListedDevice("CUDA0", "a card", 1 << 40, 1 << 40),))
    assert 296 * MIB not in {b.bytes for b in seen}
    assert not terms("ROCm0")


def test_too_much_for_two_cards_together_does_not_start(models: dict[str, Path]) -> None:
    for size, starts in (("1MiB", False), ("64MiB", True)):
        pools = parse_pools(f"CUDA0={size},CUDA1={size},host=64GiB")
        planned = plan(models["llama"], "-c 16384 -np 1 -ngl 99 -cram 0", pools=pools)
        assert (planned.starts is False) == (starts is False)


@pytest.mark.parametrize(
    ("device", "method"),
    [("CUDA0", Method.UNKNOWN), ("Vulkan0", Method.ESTIMATED), ("MTL0", None), ("RPC0", "unknown")],
)
def test_only_backends_with_a_pool_leave_something_unknown(
    models: dict[str, Path], device: str, method: Method | None
) -> None:
    pools = [ROOMY, Pool(device, (device,), 1 << 40, 1 << 40, "a test")]
    planned = plan(models["llama"], "-c 4096", pools=pools)
    pool = lines(planned, Component.POOL)
    assert (pool[device].method if pool else None) == method
    assert planned.fits is (None if method == Method.UNKNOWN else True)
    if method == Method.UNKNOWN:
        assert "margin 1.00 GiB" in pool[device].reason


def test_a_worker_on_a_cpu_has_no_pool(models: dict[str, Path]) -> None:
    listed = ListedDevice("RPC0", "10.0.0.2:50052", GIB, GIB)
    pools = [ROOMY, Pool("RPC0", ("RPC0",), 1 << 40, 1 << 40, "a test", listed=(listed,))]
    assert not lines(plan(models["llama"], "-c 4096 -fit off", pools=pools), Component.POOL)


def test_address_space_holds_stacks_and_arenas_too(models: dict[str, Path]) -> None:
    size = 8 * GIB
    ram = Pool("host", ("host",), size, size, "MemAvailable")
    limited = replace(ram, limited_by=ULIMIT, knob=ULIMIT, move_with="ulimit -v unlimited")
    args = "-c 4096 -np 16 -cram 0"
    margins = [
        plan(models["llama"], args, pools=[pool], environ=env).pools[0].margin
        for pool, env in ((ram, {}), (limited, {"MALLOC_ARENA_MAX": "1"}), (limited, {}))
    ]
    assert margins[0] < margins[1] < margins[2]
    (pool,) = plan(models["llama"], args, pools=[limited]).pools
    assert pool.note.startswith("address space, not RAM")
    assert (pool.knob, pool.move_with) == (ULIMIT, "ulimit -v unlimited")


def test_what_a_driver_says_that_cannot_be_true_gives_no_verdict(models: dict[str, Path]) -> None:
    pool = replace(ROOMY, usable=False, note="more free than there is")
    planned = plan(models["llama"], "-c 4096", pools=[pool])
    assert planned.fits is None
    assert planned.pools[0].note == "more free than there is"


def test_unified_memory_is_one_pool(models: dict[str, Path]) -> None:
    shared = Pool("shared", ("host", "Vulkan0"), 1 << 40, 1 << 40, "GTT size")
    planned = plan(models["llama"], "-c 4096", pools=[shared])
    assert {b.device for b in planned.buffers} >= {"Vulkan0", "CPU_Mapped", "Vulkan_Host"}
    assert planned.pools[0].planned == sum(b.bytes or 0 for b in planned.buffers)
    assert planned.fits is True


def test_a_card_that_lacks_room_does_not_fit_whatever_is_unknown(models: dict[str, Path]) -> None:
    pools = parse_pools("CUDA0=1MiB,host=64GiB")
    planned = plan(models["llama"], "-c 4096 -ngl 99", pools=pools)
    assert [(p.name, p.fits) for p in planned.pools] == [("host", True), ("CUDA0", False)]
    assert planned.fits is False
    assert lines(planned, Component.POOL)["CUDA0"].method is Method.UNKNOWN


def test_layers_by_free_memory_are_an_estimate(models: dict[str, Path]) -> None:
    pools = parse_pools("CUDA0=24GiB,CUDA1=16GiB,host=64GiB")
    planned = plan(models["llama"], "-c 4096", pools=pools)
    assert [note.id for note in planned.notes] == ["placement"]
    kv = lines(planned, Component.KV)
    assert {b.method for b in kv.values()} == {Method.ESTIMATED}
    assert (kv["CUDA0"].bytes or 0) > (kv["CUDA1"].bytes or 0)
    fixed = plan(models["llama"], "-c 4096 -ts 3,1", pools=pools)
    assert {b.method for b in lines(fixed, Component.KV).values()} == {Method.EXACT}


def test_budgets_that_people_type() -> None:
    host, first, second = parse_pools("CUDA0=24GiB, CUDA1=16GiB,HOST=64GiB")
    assert (host.name, host.free) == ("host", 64 * GIB)
    assert (first.devices, second.total) == (("CUDA0",), 16 * GIB)
    assert parse_pools("CUDA0=1GiB")[0].free is None
    for wrong in ("CUDA0", "=1GiB", "CUDA0=x", "host=1GiB,host=2GiB", "", "a b=1"):
        with pytest.raises(UsageError):
            parse_pools(wrong)


def test_an_unknown_architecture_still_tells_its_weights(models: dict[str, Path]) -> None:
    header = read_header(models["llama"])
    metadata = {**header.metadata, "general.architecture": "llama9"}
    planned = budget(replace(header, metadata=metadata), ["-c", "4096"])
    assert [note.id for note in planned.notes] == ["unknown"]
    weights = lines(planned, Component.WEIGHTS)["CPU_Mapped"]
    assert weights.bytes == sum(-(-t.bytes // 256) * 256 for t in header.tensors)
    assert lines(planned, Component.KV)["CPU"].bytes is None
    assert planned.fits is None


def test_an_architecture_that_only_newer_builds_know_is_sized_and_refused() -> None:
    expected = json.loads((DATA / "expected.json").read_text())["bailingmoe3"]
    planned = plan(DATA / "bailingmoe3.gguf", " ".join(expected["flags"]), build=10434)
    (note,) = (note for note in planned.notes if note.id == "refused")
    assert note.text == (
        "b10434 does not know bailingmoe3 and will refuse this model. Sizes follow the rules of "
        "newer builds."
    )
    sizes = [b.bytes or 0 for b in planned.buffers if b.component in (Component.KV, Component.RS)]
    assert sum(sizes) == expected["context_bytes"]
    assert planned.fits is False
    known = plan(DATA / "bailingmoe3.gguf", " ".join(expected["flags"]), build=11434)
    assert "refused" not in {note.id for note in known.notes}


def test_whether_a_build_between_knows_an_architecture_is_not_said() -> None:
    planned = plan(DATA / "bailingmoe3.gguf", "-c 4096", build=10800)
    assert [note.text for note in planned.notes if note.id == "between_builds"] == [
        "It is unknown whether b10800 knows bailingmoe3."
    ]
    assert planned.fits is not True


def budget(
    header: Header, args: Sequence[str], runs: Sequence[Calibration] = (), build: int | None = None
) -> Plan:
    command = parse_command(["llama-server", "-m", "m", *args], builtin_flags(), {})
    planner = Planner(header, [ROOMY], model=Path("m"), calibrations=runs, build=build)
    return planner.plan(command)


def test_settings_that_the_engine_refuses_do_not_fit(models: dict[str, Path]) -> None:
    planned = plan(models["llama"], "-c 4096 -ctv q8_0 -fa off")
    assert [note.id for note in planned.notes] == ["refused"]
    assert planned.fits is False


def test_a_build_between_those_that_were_read_gives_a_bound() -> None:
    header = read_header(DATA / "llama.gguf")
    nextn = {**header.metadata, "llama.nextn_predict_layers": 1}
    planned = budget(replace(header, metadata=nextn), ["-c", "4096", "-np", "1"], build=11000)
    assert "between_builds" in [note.id for note in planned.notes]
    kv = lines(planned, Component.KV)["CPU"]
    assert (kv.method, kv.upper_bound) == (Method.ESTIMATED, True)
    whole = budget(header, ["-c", "4096", "-np", "1"], build=11000)
    assert kv.bytes == lines(whole, Component.KV)["CPU"].bytes


def test_a_file_without_tensors_has_unknown_weights_and_the_rest() -> None:
    planned = plan(DATA / "qwen35.gguf", "-c 4096 -np 3")
    expected = json.loads((DATA / "expected.json").read_text())["qwen35"]["context_bytes"]
    sizes = [b.bytes or 0 for b in planned.buffers if b.component in (Component.KV, Component.RS)]
    assert sum(sizes) == expected
    assert lines(planned, Component.WEIGHTS)["CPU_Mapped"].method is Method.UNKNOWN
    assert planned.fits is None


def test_other_models_beside_it(models: dict[str, Path]) -> None:
    planned = plan(models["llama"], "-c 4096 -md d.gguf --mmproj p.gguf")
    draft = lines(planned, Component.DRAFT)["CPU"]
    assert (draft.bytes, draft.reason) == (None, "the draft model's header was not read")
    assert lines(planned, Component.MMPROJ)["CPU"].bytes is None
    command = parse_command(
        ["llama-server", "-m", "m", "-c", "4096", "-md", "d"], builtin_flags(), {}
    )
    header = read_header(models["llama"])
    planned = Planner(header, [ROOMY], model=Path("m"), draft=header).plan(command)
    weights = lines(planned, Component.WEIGHTS)["CPU_Mapped"].bytes or 0
    assert (lines(planned, Component.DRAFT)["CPU_Mapped"].bytes or 0) >= weights


WORDS = """
-c 0 1 4096 -np -1 64 -ngl 3 all -ts 1,2 x -ot a=CPU ( -ctk q8_0 q9 -fa off -ub -b --swa-full -kvu
-dev none CUDA9 -sm row -mg 7 -cram -ctxcp --spec-type draft-mtp ngram-mod -md --mmproj -nkvo
--embedding -fitt -lm mlock
"""


@given(st.lists(st.sampled_from(WORDS.split()), max_size=12))
@settings(max_examples=200, deadline=None)
def test_any_command_is_a_plan_or_an_error(args: list[str]) -> None:
    header = read_header(DATA / "qwen35.gguf")
    try:
        planned = budget(header, args)
    except ArrieroError:
        return
    assert all(b.bytes is None or b.bytes >= 0 for b in planned.buffers)
    assert all((b.bytes is None) == (b.method is Method.UNKNOWN) for b in planned.buffers)
