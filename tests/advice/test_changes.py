"""Changes: what they do to a command, what they cost, and which failure calls for which."""

from __future__ import annotations

import pytest

from arriero.advice import caches_bounded, caches_off, host_caches, remedies, slots, untried
from arriero.advice.caches import HostCaches
from arriero.base.sizes import GIB, MIB
from arriero.base.words import Component, Cost, Kind
from arriero.command import Command, builtin_flags, parse_command
from arriero.logs.model import Failure


def command(flags: str = "") -> Command:
    return parse_command(["llama-server", "-m", "x.gguf", *flags.split()], builtin_flags(), {})


def failure(
    component: Component | None, kind: Kind = Kind.ALLOCATION, device: str = "CPU"
) -> Failure:
    return Failure(kind=kind, component=component, device=device, fatal=True, line=1, text="x")


def test_changing_slots_keeps_the_layout_of_the_cache() -> None:
    auto = slots(2, unified=True, command=command())
    assert auto.apply(command()).argv[-3:] == ("-np", "2", "-kvu")
    fixed = slots(2, unified=False, command=command("-np 8"))
    assert fixed.apply(command("-np 8")).argv[-2:] == ("-np", "2")


def test_caches_that_are_off_cannot_be_turned_off() -> None:
    off = caches_off(command())
    assert off is not None
    done = off.apply(command())
    assert caches_off(done) is None
    assert host_caches(done, n_slots=4, per_checkpoint=MIB).most == 0


def test_the_worst_case_of_the_caches() -> None:
    most = host_caches(command(), n_slots=4, per_checkpoint=10 * MIB)
    assert most.prompt_cache == 8 * GIB
    assert most.checkpoints == 4 * 32 * 10 * MIB
    assert host_caches(command("-cram -1"), n_slots=1, per_checkpoint=None).most is None
    assert host_caches(command("-cram 0"), n_slots=1, per_checkpoint=None).most == 0


@pytest.mark.parametrize("room", [0, 100 * MIB, GIB, 5 * GIB, 20 * GIB])
def test_bounded_caches_stay_within_the_room(room: int) -> None:
    given = command("-np 4")
    caches = host_caches(given, n_slots=4, per_checkpoint=63 * MIB)
    change = caches_bounded(given, caches, room, 4)
    assert caches.most is not None
    if change is None:
        assert caches.most <= room
        return
    after = host_caches(change.apply(given), n_slots=4, per_checkpoint=63 * MIB)
    assert after.most is not None
    assert after.most <= max(room, 0)


def test_unlimited_caches_are_bounded_too() -> None:
    given = command("-cram -1")
    change = caches_bounded(given, HostCaches(None, 0, None), GIB, 1)
    assert change is not None
    assert change.apply(given).value("-cram") == "1024"


@pytest.mark.parametrize(
    ("flags", "failed", "titles"),
    [
        ("", failure(Component.RS), ()),
        ("", failure(Component.KV), ()),
        ("", failure(Component.COMPUTE), ("micro-batch 256", "micro-batch 128", "micro-batch 64")),
        ("-fa off -ub 64", failure(Component.COMPUTE), ("flash attention on", "micro-batch 32")),
        ("--no-mmap", failure(Component.WEIGHTS), ("weights mapped, not read",)),
        (
            "-ngl 99",
            failure(Component.WEIGHTS, device="CUDA0"),
            ("let the server choose the layers",),
        ),
        ("-ngl 99", failure(Component.WEIGHTS), ()),
        ("", failure(None, Kind.CRASH), ("no prompt cache, no checkpoints",)),
        ("-cram 0 -ctxcp 0", failure(None, Kind.CRASH), ()),
        ("", failure(Component.PROMPT_CACHE, Kind.RPC), ("no prompt cache, no checkpoints",)),
    ],
)
def test_a_failure_calls_for_its_own_changes(
    flags: str, failed: Failure, titles: tuple[str, ...]
) -> None:
    given = command(flags)
    found = remedies(failed, given, n_ubatch=given.number("-ub") or 512)
    assert tuple(change.title for change in found) == titles
    assert [c.cost.rank for c in found] == sorted(c.cost.rank for c in found)
    for change in found:
        assert change.apply(given).argv != given.argv
        assert change.difference(given)


def test_the_cheapest_cost_is_nothing_and_the_dearest_is_quality() -> None:
    assert min(Cost, key=lambda c: c.rank) is Cost.FREE
    assert max(Cost, key=lambda c: c.rank) is Cost.QUALITY


def test_what_was_not_tried_says_what_it_would_cost() -> None:
    assert "quality" in untried(failure(Component.KV), command())[0]
    assert untried(failure(Component.KV), command("-ctk q8_0")) == ()
    assert "does not shrink RS" in untried(failure(Component.RS), command())[0]
