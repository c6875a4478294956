"""What runs correct in a plan, and what they never do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.base.words import Component, Method, Role, TrialOutcome
from arriero.command import builtin_flags, parse_command
from arriero.gguf import Header, describe, read_header, write_model
from arriero.gguf.header import LazyArray
from arriero.gguf.presets import tiny
from arriero.launch import launch_of
from arriero.logs.model import Buffer, Failure
from arriero.machine import Pool
from arriero.memory import Calibration
from arriero.memory.calibration import calibrated, corrected
from arriero.memory.taken import fingerprint, run_buffers, run_settings
from arriero.record import ModelRecord, Plan, PlanBuffer, RunSettings, Trial
from tests.examples import example_failure, example_trials

HERE = RunSettings(
    n_ctx=4096,
    n_ctx_seq=1024,
    n_seq_max=4,
    kv_unified=False,
    n_batch=2048,
    n_ubatch=512,
    n_rs_seq=0,
    n_outputs_max=4,
    flash_attn="auto",
    type_k="f16",
    type_v="f16",
    layers=("CUDA0*9",),
)
OTHERS = {
    "n_ctx": 8192,
    "n_ctx_seq": 4096,
    "n_seq_max": 1,
    "kv_unified": True,
    "n_ubatch": 256,
    "n_rs_seq": 3,
    "n_outputs_max": 1,
    "flash_attn": "off",
    "type_k": "q8_0",
    "type_v": "q8_0",
    "layers": ("CPU*2", "CUDA0*7"),
    "flags": ("offload_kqv=False",),
}
KNOWN = (Method.EXACT, Method.MEASURED)


def line(method: Method = Method.ESTIMATED, size: int | None = 1000, **change: Any) -> PlanBuffer:
    values = {"component": Component.COMPUTE, "device": "CUDA0", "bytes": size, "method": method}
    return PlanBuffer(**{**values, **change})


def took(taken: int, planned: int | None = 1000, **change: Any) -> Calibration:
    values = {"component": Component.COMPUTE, "device": "CUDA0", "same": True, "settings": HERE}
    return Calibration(taken=taken, planned=planned, **{**values, **change})


elsewhere = st.sampled_from(sorted(OTHERS)).map(
    lambda name: msgspec.structs.replace(HERE, **{name: OTHERS[name]})
)
calibration = st.builds(
    Calibration,
    component=st.sampled_from([Component.COMPUTE, Component.KV]),
    device=st.sampled_from(["CUDA0", "CUDA1", "CPU", "Vulkan0"]),
    taken=st.integers(0, 1 << 40),
    planned=st.none() | st.integers(0, 1 << 40),
    same=st.booleans(),
    settings=st.just(HERE) | elsewhere,
    rounding=st.sampled_from([0, 5243]),
    method=st.sampled_from(Method),
    asked=st.none() | st.integers(0, 1 << 40),
    run=st.just("run-1"),
)
buffer = st.builds(
    line,
    method=st.sampled_from(Method),
    size=st.none() | st.integers(0, 1 << 40),
    component=st.sampled_from([Component.COMPUTE, Component.KV, Component.POOL]),
    device=st.sampled_from(["CUDA0", "CUDA1", "CPU"]),
)


@given(before=buffer, runs=st.lists(calibration, max_size=8))
def test_the_rules_hold_whatever_ran(before: PlanBuffer, runs: list[Calibration]) -> None:
    after = calibrated(before, runs, HERE)
    mine = [r.taken for r in runs if r.is_of(before) and r.settings == HERE]
    if before.method in KNOWN:
        assert after == before
    elif mine:
        assert (after.bytes, after.method) == (max(mine), Method.CALIBRATED)
        assert after.residual == (None if before.bytes is None else max(mine) - before.bytes)
    elif before.bytes is None:
        assert after == before
    else:
        assert (after.bytes or 0) >= before.bytes, "optimism was borrowed"
        assert after.method is before.method
        if after != before:
            assert after.residual == (after.bytes or 0) - before.bytes
            assert after.reason


@given(runs=st.lists(calibration, max_size=8), before=st.lists(buffer, max_size=4))
def test_no_line_is_lost_and_what_is_known_stays(
    runs: list[Calibration], before: list[PlanBuffer]
) -> None:
    after, _ = corrected(before, runs, HERE)
    assert [(b.component, b.device) for b in after[: len(before)]] == [
        (b.component, b.device) for b in before
    ]
    assert [b for b in after if b.method in KNOWN] == [b for b in before if b.method in KNOWN]


@given(settings=elsewhere, taken=st.integers(0, 999))
def test_what_took_less_counts_for_its_own_settings_only(settings: RunSettings, taken: int) -> None:
    assert calibrated(line(), [took(taken)], HERE).bytes == taken
    assert calibrated(line(), [took(taken)], settings) == line()
    assert calibrated(line(), [took(taken, same=False)], HERE) == line()
    assert calibrated(line(device="CUDA1"), [took(taken)], HERE) == line(device="CUDA1")


@given(settings=elsewhere, taken=st.integers(1001, 5000), size=st.integers(1, 1 << 40))
def test_what_took_more_counts_for_all_alike_in_proportion(
    settings: RunSettings, taken: int, size: int
) -> None:
    for run, at in ((took(taken, same=False), HERE), (took(taken), settings)):
        for device in ("CUDA0", "CUDA3"):
            after = calibrated(line(size=size, device=device), [run], at)
            assert after.bytes == -(-size * taken // 1000)
            assert (after.method, after.residual) == (Method.ESTIMATED, (after.bytes or 0) - size)
    assert calibrated(line(device="CPU"), [took(taken, same=False)], HERE) == line(device="CPU")


def test_a_difference_within_a_size_line_s_last_digit_is_none() -> None:
    assert calibrated(line(), [took(1005, same=False, rounding=5)], HERE) == line()
    assert calibrated(line(), [took(1006, same=False, rounding=5)], HERE) != line()


def test_what_was_unknown_or_not_foreseen_is_what_a_run_took() -> None:
    unknown = line(Method.UNKNOWN, None)
    after, notes = corrected([unknown], [took(64), took(8, device="CUDA_Host")], HERE)
    assert [(b.device, b.bytes, b.method, b.residual) for b in after] == [
        ("CUDA0", 64, Method.CALIBRATED, None),
        ("CUDA_Host", 8, Method.CALIBRATED, None),
    ]
    assert [note.id for note in notes] == ["calibration"]
    measured = line(Method.MEASURED)
    assert corrected([measured], [took(1000), took(8, device="CPU")], HERE) == ((measured,), ())


def test_a_run_that_disagrees_with_what_is_known_is_told() -> None:
    exact = line(Method.EXACT, component=Component.KV)
    fine = took(1004, component=Component.KV, rounding=5, method=Method.EXACT)
    assert corrected([exact], [fine], HERE) == ((exact,), ())
    off = replace(fine, taken=1006, run="run-2")
    after, notes = corrected([exact], [off, replace(off, run="run-1")], HERE)
    assert after == (exact,)
    assert [(note.id, note.text) for note in notes] == [
        ("drift", "kv on CUDA0: at these settings run-2 took 1006 bytes where 1000 were expected")
    ]
    there = msgspec.structs.replace(HERE, n_ctx=8192)
    _, notes = corrected([exact], [replace(off, planned=2000, taken=2500)], there)
    assert "at other settings run-2 took 2500 bytes where 2000" in notes[0].text
    bound = replace(off, planned=2000, method=Method.ESTIMATED)
    assert corrected([exact], [bound], there) == ((exact,), ())


# --- what is the same ---------------------------------------------------------------------------


def renamed(header: Header) -> Header:
    return replace(
        header,
        metadata={**header.metadata, "general.name": "another", "tokenizer.chat_template": "x"},
        tensors=tuple(replace(t, offset=t.offset + 4096) for t in header.tensors),
    )


def test_a_fingerprint_is_of_shapes_alone(tmp_path: Path) -> None:
    header = read_header(write_model(tmp_path / "a.gguf", tiny("llama")))
    assert fingerprint(renamed(header)) == fingerprint(header)
    tokens = header.metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, LazyArray)
    for key, value in (
        ("llama.attention.head_count_kv", 1),
        ("tokenizer.ggml.tokens", replace(tokens, count=tokens.count + 1)),
    ):
        other = replace(header, metadata={**header.metadata, key: value})
        assert fingerprint(other) != fingerprint(header)
    other = replace(header, tensors=(*header.tensors[1:], replace(header.tensors[0], type="q8_0")))
    assert fingerprint(other) != fingerprint(header)


POOLS = (
    Pool("host", ("host",), 64 << 30, 60 << 30, "a test"),
    Pool("CUDA0", ("CUDA0",), 24 << 30, 16 << 30, "a test"),
    Pool("CUDA1", ("CUDA1",), 24 << 30, 8 << 30, "a test"),
)
ALIKE = (
    ("", "-c 32768"),
    ("-c 4000", "-c 4096"),
    ("-np 4 -kvu", "-np 4 --kv-unified"),
    ("-b 2048 -ub 512", ""),
    ("-ngl 99", "-ngl all"),
    ("--host 0.0.0.0 -t 4 --alias x -cram 0 -ctxcp 2", ""),
    ("-c 256 -ub 512", "-c 256 -ub 256"),
)
DIFFERENT = (
    *(("-c 4096", other) for other in ("-c 8192", "-c 4096 -np 2", "-c 4096 -ub 128")),
    *(("-np 4", other) for other in ("-np 4 -kvu", "-np 3", "-np 4 -fa off", "-np 4 -ctk q8_0")),
    *(("", other) for other in ("-ngl 3", "-ts 1,2", "-ot blk=CPU", "-nkvo", "--embedding")),
    *(("", other) for other in ("-sm none -mg 1", "--no-mmap", "--swa-full", "-dev CUDA1")),
    *(("", other) for other in ("--spec-type draft-mtp", "-md a.gguf", "--no-repack")),
    ("-md a.gguf", "-md b.gguf"),
    ("-md a.gguf", "-md a.gguf -ngld 0"),
)


def settings_in(header: Header, args: str, pools: Sequence[Pool] = POOLS) -> RunSettings:
    command = parse_command(["llama-server", "-m", "m", *args.split()], builtin_flags(), {})
    about = describe(header)
    settings = launch_of(command, Path("m"), n_ctx_train=about.n_ctx_train or 0, build=10434)
    return run_settings(about, settings, pools)


@pytest.fixture(scope="module")
def header(tmp_path_factory: pytest.TempPathFactory) -> Header:
    shape = replace(tiny("llama", layers=8), context_train=32768)
    return read_header(write_model(tmp_path_factory.mktemp("models") / "a.gguf", shape))


@pytest.mark.parametrize(("one", "other"), ALIKE)
def test_words_for_the_same_settings(header: Header, one: str, other: str) -> None:
    assert settings_in(header, one) == settings_in(header, other)


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_what_changes_a_buffer_changes_the_settings(header: Header, one: str, other: str) -> None:
    assert settings_in(header, one) != settings_in(header, other)


def test_settings_say_where_layers_are(header: Header) -> None:
    assert settings_in(header, "").layers == ("CUDA0*6", "CUDA1*3")
    assert settings_in(header, "-ngl 4 -ts 1,1").layers == ("CPU*5", "CUDA0*2", "CUDA1*2")
    assert settings_in(header, "", POOLS[:1]).layers == ("CPU*9",)
    freed = (*POOLS[:2], replace(POOLS[2], free=24 << 30))
    assert settings_in(header, "", freed) != settings_in(header, "")
    assert "secret" not in repr(settings_in(header, "-md /home/secret/d.gguf"))


# --- from a trial -------------------------------------------------------------------------------


def plan_of(*lines: PlanBuffer) -> Plan:
    return Plan(model=ModelRecord(path="m"), context=None, buffers=lines, pools=(), fits=None)


def trial(outcome: TrialOutcome, *buffers: Buffer, failure: Failure | None = None) -> Trial:
    base = example_trials()[0]
    return msgspec.structs.replace(base, outcome=outcome, buffers=buffers, failure=failure)


def logged(component: Component, size: int, device: str = "CPU", role: Role = Role.MAIN) -> Buffer:
    return Buffer(component=component, device=device, bytes=size, line=1, role=role)


def sizes(*args: Any) -> dict[tuple[str, str], tuple[int | None, int | None, int | None]]:
    return {
        (b.component.value, b.device): (b.taken, b.planned, b.asked) for b in run_buffers(*args)
    }


def test_a_run_is_laid_beside_its_plans() -> None:
    planned = plan_of(
        line(Method.EXACT, 300, component=Component.KV, device="CPU"),
        line(Method.ESTIMATED, 900, component=Component.COMPUTE, device="CPU"),
        line(Method.ESTIMATED, 700, component=Component.COMPUTE, device="RPC0"),
        line(Method.ESTIMATED, 50, component=Component.COMPUTE, device="CUDA_Host"),
        line(Method.EXACT, 8, component=Component.PROMPT_CACHE, device="CPU"),
        line(Method.ESTIMATED, 90, component=Component.DRAFT, device="CPU"),
    )
    asked = plan_of(line(Method.MEASURED, 410, component=Component.COMPUTE, device="CPU"))
    ran = trial(
        TrialOutcome.SERVED,
        logged(Component.KV, 100),
        logged(Component.KV, 200),
        logged(Component.COMPUTE, 400),
        logged(Component.COMPUTE, 600, "RPC0[10.0.0.7:50052]"),
        logged(Component.KV, 10, role=Role.DRAFT),
        logged(Component.COMPUTE, 20, role=Role.DRAFT),
        logged(Component.COMPUTE, 999, role=Role.MMPROJ),
        logged(Component.RS, 5, "CUDA0"),
    )
    assert sizes(ran, planned, asked) == {
        ("kv", "CPU"): (300, 300, None),
        ("compute", "CPU"): (400, 900, 410),
        ("compute", "RPC0"): (600, 700, None),
        ("draft", "CPU"): (30, 90, None),
        ("rs", "CUDA0"): (5, None, None),
        ("compute", "CUDA_Host"): (0, 50, None),
    }
    rounding = {b.component: b.rounding for b in run_buffers(ran, planned) if b.device == "CPU"}
    assert rounding[Component.KV] == 2 * rounding[Component.COMPUTE] == 2 * 5243


def test_a_start_that_failed_shows_what_was_refused_and_nothing_else() -> None:
    planned = plan_of(line(Method.ESTIMATED, 900, component=Component.COMPUTE, device="CPU"))
    refused = msgspec.structs.replace(
        example_failure(), component=Component.COMPUTE, device="CPU", buffer_bytes=1200
    )
    seen = logged(Component.KV, 100)
    assert sizes(trial(TrialOutcome.FAILED, seen, failure=refused), planned) == {
        ("compute", "CPU"): (1200, 900, None)
    }
    for change in ({"component": Component.KV}, {"device": None}, {"buffer_bytes": None}):
        other = msgspec.structs.replace(refused, **change)
        assert sizes(trial(TrialOutcome.FAILED, seen, failure=other), planned) == {}
    assert sizes(trial(TrialOutcome.FAILED, seen), planned) == {}


def test_a_log_without_compute_lines_says_nothing_about_what_it_lacks() -> None:
    planned = plan_of(
        line(Method.ESTIMATED, 900, component=Component.COMPUTE, device="CPU"),
        line(Method.EXACT, 90, component=Component.RS, device="CPU"),
    )
    assert sizes(trial(TrialOutcome.READY, logged(Component.KV, 100)), planned) == {
        ("kv", "CPU"): (100, None, None)
    }
