"""Changes that are planned before anything starts: cheapest first, true, and none too many."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from arriero.advice import Counsel, advise
from arriero.base.sizes import MIB
from arriero.base.words import Cost
from arriero.command import Command, builtin_flags, parse_command
from arriero.gguf import Header, Shape, read_header, write_model
from arriero.gguf.presets import LADDER_DENSE, LADDER_HYBRID
from arriero.memory import Planner, parse_pools
from arriero.memory.frontier import WhatIf, lacking
from arriero.record import Advice, Plan

DENSE = Shape(
    arch="llama",
    name="dense",
    layers=32,
    embedding=4096,
    heads=32,
    heads_kv=8,
    head_dim=128,
    feed_forward=14336,
    vocab=32000,
    context_train=131072,
    tensor_type="q8_0",
)


@dataclass(frozen=True)
class Asked:
    command: Command
    base: Plan
    counsel: Counsel
    replan: Callable[[Command], Plan]

    @property
    def recommended(self) -> Advice | None:
        (*found,) = (one for one in self.counsel.advice if one.recommended)
        assert len(found) <= 1
        return found[0] if found else None

    def change(self, text: str) -> Advice:
        return next(one for one in self.counsel.advice if one.change.startswith(text))


SHAPES = {"hybrid": LADDER_HYBRID, "small": LADDER_DENSE, "dense": DENSE}


@cache
def header_of(name: str) -> Header:
    with tempfile.TemporaryDirectory() as home:
        return read_header(write_model(Path(home) / "m.gguf", SHAPES[name], weights="zeros"))


def ask(name: str, options: str, budget: str) -> Asked:
    words = ["llama-server", "-m", "x.gguf", *options.split()]
    command = parse_command(words, builtin_flags(), {})
    header, pools = header_of(name), parse_pools(budget)

    replan = Planner(header, pools, model=Path("x.gguf"), build=10434).quick
    what_if = WhatIf(replan)
    asked = Asked(command, replan(command), advise(command, header, what_if), replan)
    check(asked)
    return asked


def check(asked: Asked) -> None:
    """Every change says what its own command is planned to take."""
    before = {pool.name: pool for pool in asked.base.pools}
    for one in asked.counsel.advice:
        plan = asked.replan(parse_command(one.argv, builtin_flags(), {}))
        after = {pool.name: pool for pool in plan.pools}
        assert one.headroom == after[one.pool].headroom
        assert one.fits is plan.fits
        if lacking(asked.base) and one.change in {"-np 1", "-nkvo"}:
            assert one.saves == before[one.pool].planned - after[one.pool].planned
        assert one.saves > 0 or one.change.startswith("-cram ")
        if one.recommended:
            assert plan.fits is not False
            assert not lacking(plan)
    ranks = [one.cost.rank for one in asked.counsel.advice]
    if ranks and asked.counsel.advice[-1].cost is Cost.PROMPT_REUSE:
        ranks.pop()  # what bounds growth goes with any of the others
    assert ranks == sorted(ranks)


def test_what_fits_needs_no_change() -> None:
    assert ask("small", "-c 4096", "host=64GiB").counsel == Counsel()


def test_growth_is_bounded_first_and_only_as_far_as_needed() -> None:
    asked = ask("hybrid", "-c 4096 -np 8", "host=12GiB")
    best = asked.recommended
    assert best is not None
    assert best.cost is Cost.PROMPT_REUSE
    kept = int(best.argv[best.argv.index("-ctxcp") + 1])
    assert 0 < kept < 32
    pool = asked.base.pools[0]
    spare = (best.headroom or 0) - pool.margin
    assert 0 <= spare < 8 * 64 * MIB + 64 * MIB  # one more for each slot would not fit


def test_fewer_slots_are_the_most_that_fit() -> None:
    asked = ask("hybrid", "-c 4096 -np 64 -cram 0 -ctxcp 0", "host=3GiB")
    best = asked.recommended
    assert best is not None
    assert best.cost is Cost.CONCURRENCY
    slots = int(best.argv[best.argv.index("-np") + 1])
    assert 1 < slots < 64
    more = asked.command.with_value("-np", str(slots + 1))
    assert asked.replan(more).fits is not True


def test_a_shorter_context_is_the_longest_that_fits() -> None:
    asked = ask("dense", "-c 131072 -np 1 -ngl 99 -cram 0", "CUDA0=20GiB,host=4GiB")
    one = asked.change("-c ")
    tokens = int(one.argv[one.argv.index("-c") + 1])
    assert tokens % 256 == 0
    assert lacking(asked.replan(asked.command.with_value("-c", str(tokens)))) == ()
    longer = asked.replan(asked.command.with_value("-c", str(tokens + 256)))
    assert [pool.name for pool in lacking(longer)] == ["CUDA0"]


def test_layers_move_to_a_host_that_can_take_them() -> None:
    asked = ask("dense", "-c 65536 -np 1 -ngl 99 -cram 0", "CUDA0=12GiB,host=64GiB")
    best = asked.recommended
    assert best is not None
    assert best.cost is Cost.SPEED
    one = asked.change("-ngl ")
    layers = int(one.argv[one.argv.index("-ngl") + 1])
    assert lacking(asked.replan(asked.command.with_value("-ngl", str(layers + 1))))


def test_free_changes_come_first() -> None:
    asked = ask("dense", "-c 65536 -np 1 -ngl 99 -cram 0 -fa off", "CUDA0=20GiB,host=64GiB")
    best = asked.recommended
    assert best is not None
    assert (best.change, best.cost) == ("-fa on", Cost.FREE)


def test_a_quantised_cache_is_offered_and_never_without_flash_attention() -> None:
    options = "-c 131072 -np 1 -ngl 99 -cram 0"
    asked = ask("dense", options, "CUDA0=20GiB,host=2GiB")
    assert asked.change("-ctk q8_0 -ctv q8_0").cost is Cost.QUALITY
    off = ask("dense", options + " -fa off", "CUDA0=20GiB,host=2GiB")
    assert not any("-fa off" in " ".join(o.argv) and "q8_0" in o.change for o in off.counsel.advice)


def test_where_nothing_helps_it_says_how_much_is_missing() -> None:
    asked = ask("hybrid", "-c 4096 -np 64", "host=100MiB")
    assert asked.recommended is None
    assert "too much with its margin" in asked.counsel.missing
    last = asked.counsel.advice[-1]
    short = lacking(asked.replan(parse_command(last.argv, builtin_flags(), {})))[0]
    assert (
        f"{(short.margin - (short.headroom or 0)) / MIB:.0f} MiB too much" in asked.counsel.missing
    )
    assert {"-np", "-c", "-ub", "-cram", "-ctxcp"} <= set(last.change.split())


def test_a_prompt_cache_without_limit_gets_one() -> None:
    asked = ask("small", "-c 4096 -cram -1", "host=64GiB")
    assert asked.base.fits is None
    assert [(one.change, one.fits) for one in asked.counsel.advice] == [("-cram 8192", True)]


def test_checkpoints_are_told_beside_what_fits() -> None:
    asked = ask("hybrid", "-c 4096 -np 8", "host=64GiB")
    assert [(one.change, one.recommended) for one in asked.counsel.advice] == [("-ctxcp 8", False)]


def test_secrets_stay_out() -> None:
    asked = ask("hybrid", "-np 64 -c 4096 --api-key planted-key-1", "host=4GiB")
    assert asked.counsel.advice
    assert not any("planted-key-1" in word for o in asked.counsel.advice for word in o.argv)


@settings(max_examples=10, deadline=None)
@given(
    name=st.sampled_from(["hybrid", "small", "dense"]),
    host=st.integers(64, 40_000),
    card=st.integers(0, 30_000),
    slots=st.integers(1, 64),
    tokens=st.integers(1, 1 << 18),
    more=st.sampled_from(
        ["", "-ngl 99", "-fa off", "-kvu", "-cram 0 -ctxcp 0", "-cram -1", "-nkvo"]
    ),
)
def test_whatever_is_asked_advice_holds_what_it_says(
    name: str,
    host: int,
    card: int,
    slots: int,
    tokens: int,
    more: str,
) -> None:
    budget = f"host={host}MiB" + (f",CUDA0={card}MiB" if card else "")
    asked = ask(name, f"-c {tokens} -np {slots} {more}", budget)
    if lacking(asked.base):
        assert (asked.recommended is None) == bool(asked.counsel.missing)
