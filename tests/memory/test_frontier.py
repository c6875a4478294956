"""The largest setting that fits: by formulas alone, corrected by an engine, and by a real one."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arriero.base.sizes import MIB
from arriero.command import Command, builtin_flags, parse_command
from arriero.gguf import Header, read_header, write_model
from arriero.gguf.presets import LADDER_HYBRID
from arriero.launch.edits import with_slots
from arriero.machine import Pool
from arriero.memory import DryRuns, Planner
from arriero.memory.frontier import WhatIf, frontier, lacking
from arriero.memory.pools import parse_pools
from arriero.record import Plan, PlanNote
from tests.memory.planning import engine_of

CACHES_OFF = "-cram 0 -ctxcp 0"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("m") / "h.gguf", LADDER_HYBRID, weights="zeros")


@pytest.fixture(scope="module")
def header() -> Header:
    return ladder()


@cache
def ladder() -> Header:
    """Not a fixture: a property test would have to print it."""
    with tempfile.TemporaryDirectory() as home:
        return read_header(write_model(Path(home) / "h.gguf", LADDER_HYBRID, weights="zeros"))


def command(options: str) -> Command:
    return parse_command(["llama-server", "-m", "x", *options.split()], builtin_flags(), {})


def formulas(header: Header, pools: tuple[Pool, ...]) -> Callable[[Command], Plan]:
    return Planner(header, pools, model=Path("x"), build=10434).quick


def taking_more(plan: Plan, more: int) -> Plan:
    """The plan with so many bytes more on the host, as an engine could say."""
    pools = tuple(
        msgspec.structs.replace(
            pool,
            planned=pool.planned + more,
            headroom=None if pool.headroom is None else pool.headroom - more,
            fits=None if pool.headroom is None else pool.headroom - more >= pool.margin,
        )
        for pool in plan.pools
    )
    return msgspec.structs.replace(plan, pools=pools, fits=pools[0].fits)


@settings(max_examples=10, deadline=None)
@given(host=st.integers(600, 8000), more=st.integers(-200, 400))
def test_the_largest_is_the_last_that_the_engine_lets_fit(host: int, more: int) -> None:
    quick = formulas(ladder(), parse_pools(f"host={host}MiB"))
    asked: list[Command] = []

    def sure(changed: Command) -> Plan:
        asked.append(changed)
        return taking_more(quick(changed), more * MIB)

    # without -c the fit would fill what there is, and fewer slots would take no less
    base = command(f"{CACHES_OFF} -c 4096")
    slots = range(1, 33)
    found = WhatIf(quick, sure).largest(slots, lambda n: base.with_value("-np", str(n)))
    fits = [n for n in slots if sure(base.with_value("-np", str(n))).fits]
    assert found == (fits[-1] if fits else None)
    assert len(asked) - len(slots) <= 5


def test_without_an_engine_formulas_decide(header: Header) -> None:
    quick = formulas(header, parse_pools("host=2GiB"))
    what_if = WhatIf(quick)
    points = list(
        frontier(command(f"{CACHES_OFF} -np 6"), what_if, kv_unified=False, n_ctx_train=1 << 20)
    )
    assert [point.n_seq_max for point in points] == [1, 2, 4, 6]
    for point in points:
        assert point.n_ctx is not None
        assert point.n_ctx_seq == point.n_ctx // point.n_seq_max
        assert point.limited_by == "host"
        at = with_slots(command(CACHES_OFF), point.n_seq_max, unified=False)
        fits = quick(at.with_value("-c", str(point.n_ctx)))
        longer = quick(at.with_value("-c", str(point.n_ctx + 256 * point.n_seq_max)))
        assert (fits.fits, longer.fits) == (True, None)
        assert point.headroom == fits.pools[0].headroom


def test_no_slot_gets_more_than_the_model_was_trained_for(header: Header) -> None:
    what_if = WhatIf(formulas(header, parse_pools("host=900GiB")))
    apart, together = (
        list(frontier(command("-np 2"), what_if, kv_unified=unified, n_ctx_train=4096))
        for unified in (False, True)
    )
    assert [(p.n_ctx, p.limited_by) for p in apart] == [(4096, None), (8192, None)]
    assert [(p.n_ctx, p.limited_by) for p in together] == [(4096, None), (4096, None)]


def test_where_nothing_fits_the_pool_is_named(header: Header) -> None:
    what_if = WhatIf(formulas(header, parse_pools("host=100MiB")))
    (point,) = frontier(command("-np 1"), what_if, kv_unified=False, n_ctx_train=None)
    assert (point.n_ctx, point.n_ctx_seq, point.limited_by) == (None, None, "host")
    assert (point.headroom or 0) < 0


def test_caches_without_room_for_their_defaults_are_capped_first(header: Header) -> None:
    quick = formulas(header, parse_pools("host=4GiB"))
    points = list(frontier(command("-np 2"), WhatIf(quick), kv_unified=False, n_ctx_train=8192))
    for point in points:
        assert point.n_ctx is not None
        caps = dict(zip(point.capped[::2], point.capped[1::2], strict=True))
        assert {*caps} == {"-ctxcp", "-cram"}
        at = with_slots(command("-np 2"), point.n_seq_max, unified=False)
        for flag, value in {**caps, "-c": str(point.n_ctx)}.items():
            at = at.with_value(flag, value)
        assert quick(at).fits is True


def test_what_the_command_says_of_caches_stays(header: Header) -> None:
    quick = formulas(header, parse_pools("host=4GiB"))
    given = command("-np 1 -cram 8192 -ctxcp 0")
    (point,) = frontier(given, WhatIf(quick), kv_unified=False, n_ctx_train=8192)
    assert (point.n_ctx, point.capped) == (None, ())
    roomy = formulas(header, parse_pools("host=64GiB"))
    (point,) = frontier(command("-np 1"), WhatIf(roomy), kv_unified=False, n_ctx_train=8192)
    assert (point.n_ctx, point.capped) == (8192, ())


def test_left_to_the_server_it_goes_up_to_64_unified_slots(header: Header) -> None:
    what_if = WhatIf(formulas(header, parse_pools("host=16GiB")))
    points = list(frontier(command(CACHES_OFF), what_if, kv_unified=True, n_ctx_train=8192))
    assert [point.n_seq_max for point in points] == [1, 2, 4, 8, 16, 32, 64]
    assert {point.kv_unified for point in points} == {True}


def test_what_an_engine_cannot_make_does_not_hold(header: Header) -> None:
    quick = formulas(header, parse_pools("host=64GiB"))

    def sure(changed: Command) -> Plan:
        found = quick(changed)
        if (changed.number("-np") or 0) <= 8:
            return found
        note = PlanNote(id="dry_run", text="the engine gives no answer by a dry run: it died")
        return msgspec.structs.replace(found, notes=(*found.notes, note))

    what_if = WhatIf(quick, sure)
    base = command(CACHES_OFF)
    assert what_if.largest(range(1, 17), lambda n: base.with_value("-np", str(n))) == 8
    assert not what_if.holds(base.with_value("-np", "9"))


def test_the_worst_pool_comes_first(header: Header) -> None:
    pools = parse_pools("CUDA0=1MiB,host=1GiB")
    plan = formulas(header, pools)(command("-np 64 -ngl 99 --fit off"))
    assert [pool.name for pool in lacking(plan)] == ["host", "CUDA0"]


@pytest.mark.engine
def test_a_real_engine_confirms_the_frontier(
    model: Path, header: Header, engine_path: Callable[[int], Path]
) -> None:
    engine = engine_of(engine_path(10434))
    pools = parse_pools("host=3GiB")

    asked = DryRuns.of(engine, dict(os.environ))
    sure = Planner(header, pools, model=model, answers=asked, build=engine.build).plan
    base = command(f"{CACHES_OFF} -np 4")
    what_if = WhatIf(formulas(header, pools), sure)
    for point in frontier(base, what_if, kv_unified=False, n_ctx_train=1 << 20):
        assert point.n_ctx is not None
        at = with_slots(base, point.n_seq_max, unified=False)
        fits = sure(at.with_value("-c", str(point.n_ctx)))
        longer = sure(at.with_value("-c", str(point.n_ctx + 256 * point.n_seq_max)))
        assert (fits.fits, longer.fits) == (True, None)
