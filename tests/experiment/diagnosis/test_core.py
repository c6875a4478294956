"""The procedure in a world of its own: right in odd ones, and in few launches in plain ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arriero.base.sizes import MIB
from arriero.base.words import Component, Cost, Evidence, Kind, LimitKind, TrialOutcome
from arriero.experiment.diagnosis import NoForecast, Point
from arriero.experiment.diagnosis.evidence import difference
from arriero.logs.model import Cpu, Failure
from arriero.process import Limit
from arriero.record import Boundary, Diagnosis, Trial
from tests.experiment.diagnosis.world import (
    STANDARD,
    Knowing,
    Listening,
    Server,
    World,
    diagnose,
    refused,
)

SERVED, READY, FAILED = TrialOutcome.SERVED, TrialOutcome.READY, TrialOutcome.FAILED
RAM = Limit(2048 * MIB, LimitKind.CGROUP)
BARE = "-cram 0 -ctxcp 0"
"""Nothing that grows: what is held beside a variable is then the command as given."""


def check(found: Diagnosis, world: World) -> None:
    """No number in a record that no trial showed."""
    trials = {trial.n: trial for trial in found.trials}
    assert found.launches == len(world.specs)
    assert [*trials] == [spec.n for spec in world.specs][: len(trials)]
    if found.verdict is not None and found.verdict.trial is not None:
        assert trials[found.verdict.trial].failure == found.verdict.failure
    for flag, edge in found.boundary.items():
        check_boundary(flag, edge, trials, world)
    best = found.recommendation
    if best is not None:
        assert best.trial is not None
        spec, trial = world.specs[best.trial - 1], trials[best.trial]
        assert (trial.outcome, trial.valid) == (SERVED, True)
        assert best.argv == spec.command.safe_argv()
        assert (best.env, best.requests) == (dict(spec.env), trial.requests)
        assert spec.workload.min_requests >= 64


def check_boundary(flag: str, edge: Boundary, trials: dict[int, Trial], world: World) -> None:
    assert edge.trials, "a boundary without a trial"
    specs = {n: world.specs[n - 1] for n in edge.trials}
    real = {n: spec for n, spec in specs.items() if spec.command.value("-m") == "m.gguf"}
    some = next(iter(real.values()))
    seen: dict[int, list[Trial]] = {}
    for n, spec in specs.items():
        trial = trials[n]
        assert trial.valid
        if n in real:
            assert set(difference(some.command, spec.command)) <= {flag, "-kvu"}
            assert dict(spec.env) == dict(some.env)
        assert trial.outcome is not READY or spec.workload.min_requests == 0
        seen.setdefault(spec.command.number(flag) or 0, []).append(trial)

    def showed(value: int | None, *outcomes: TrialOutcome) -> list[Trial]:
        return [t for t in seen.get(value or 0, ()) if t.outcome in outcomes]

    if edge.served is not None:
        served = showed(edge.served, SERVED)
        assert len(served) >= 2 or min(t.headroom or 0 for t in served) >= 8 * MIB
    assert edge.fails is None or showed(edge.fails, FAILED)
    assert edge.ready is None or showed(edge.ready, SERVED, READY)
    below = [v for v in (edge.served, edge.ready) if v is not None]
    assert edge.fails is None or all(v < edge.fails for v in below)
    assert below == sorted(below)


def outcomes(found: Diagnosis) -> list[TrialOutcome]:
    return [trial.outcome for trial in found.trials]


# --- few launches -------------------------------------------------------------------------------


def test_a_verdict_two_boundaries_and_a_proof_take_seven_launches() -> None:
    world = World(Server(rs=62 * MIB))
    found = diagnose(world, "-c 4096 -np 64", trained=1 << 20)
    check(found, world)
    assert (found.complete, found.launches) == (True, 7)
    assert found.verdict is not None
    assert (found.verdict.component, found.verdict.trial) == (Component.RS, 2)
    for edge in (found.boundary["-np"], found.boundary["-c"]):
        assert edge.served is not None
        assert edge.fails is not None
    assert found.recommendation is not None
    assert found.recommendation.verified


def test_the_run_as_given_is_the_one_that_fails() -> None:
    """Nothing is held that the command as given does not have: it is a point of its boundary."""
    world = World(limit=RAM)
    found = diagnose(world, f"-c 4096 -np 23 {BARE}")
    check(found, world)
    edge = found.boundary["-np"]
    assert (edge.served, edge.ready, edge.fails) == (21, 22, 23)
    assert edge.trials[0] == 2
    assert found.launches == 6
    other = World()  # here an environment variable is held, which the command as given lacks
    found = diagnose(other, f"-c 4096 -np 23 {BARE}")
    check(found, other)
    assert 2 not in found.boundary["-np"].trials
    assert found.boundary["-np"].fails == 23
    assert found.launches == 7


def test_the_run_that_serves_is_the_proof() -> None:
    world = World(Server(rs=600 * MIB))
    found = diagnose(world, f"-c 4096 -np 8 {BARE}")
    check(found, world)
    assert found.recommendation is not None
    assert found.recommendation.trial in found.boundary["-np"].trials
    assert found.recommendation.changes[0] == "slots 8 → 2"
    assert found.launches == 5


def test_a_longer_load_that_breaks_says_nothing_of_the_standard_one() -> None:
    world = World(Server(rs=600 * MIB, breaks_at=40))
    found = diagnose(world, f"-c 4096 -np 8 {BARE}")
    check(found, world)
    assert found.boundary["-np"].served == 2
    runs = [spec for spec in world.specs if spec.command.number("-np") == 2]
    assert [spec.workload.min_requests for spec in runs] == [64, 0]
    assert found.recommendation is None
    assert any("none of the changes" in note for note in found.notes)


def test_a_command_that_breaks_late_is_no_point_of_its_boundary() -> None:
    """As given it is asked for more requests than the runs of a boundary are."""
    world = World(Server(leak=3 * MIB), limit=RAM)
    found = diagnose(world, f"-c 4096 -np 20 {BARE}")
    check(found, world)
    assert (found.verdict and found.verdict.trial, found.trials[1].outcome) == (2, READY)
    edge = found.boundary["-np"]
    assert edge.served == 20
    assert 2 not in edge.trials


def test_both_boundaries_share_the_run_of_one_slot() -> None:
    world = World(Server(rs=900 * MIB))
    found = diagnose(world, f"-c 4096 -np 8 {BARE}")
    check(found, world)
    assert found.boundary["-np"].served == 1
    shared = {*found.boundary["-np"].trials} & {*found.boundary["-c"].trials}
    assert [world.specs[n - 1].command.number("-np") for n in shared] == [1]
    assert found.launches == 4


def test_the_small_start_is_a_point_where_what_is_held_is_equal() -> None:
    world = World()
    found = diagnose(world, f"-c 4096 -np 64 {BARE}")
    check(found, world)
    assert 1 in found.boundary["-c"].trials
    found = diagnose(World(), "-c 4096 -np 64")  # the search turns caches off, the small start not
    assert 1 not in found.boundary["-c"].trials


@pytest.mark.parametrize(
    ("world", "flags", "runs"),
    [
        (World(Server(serving=8 * MIB)), "-np 64", 1),
        (World(Server(serving=60 * MIB)), "-np 64", 2),
        (World(Server(serving=8 * MIB), limit=Limit(1990 * MIB, LimitKind.CGROUP)), "-np 64", 2),
    ],
    ids=["clear", "as near as requests differ", "near the limit"],
)
def test_near_an_edge_one_run_proves_little(world: World, flags: str, runs: int) -> None:
    found = diagnose(world, f"-c 4096 {flags}")
    check(found, world)
    edge = found.boundary["-np"]
    again = [n for n in edge.trials if world.specs[n - 1].command.number("-np") == edge.served]
    assert len(again) == runs


def test_what_is_not_about_memory_is_seen_twice() -> None:
    """A start that dies, and not for memory: how far it is from the limit says nothing."""
    world = World()
    died = Failure(kind=Kind.CRASH, fatal=True, line=1, text="SIGSEGV")
    world.server.odd = lambda point: FAILED if point.slots > 6 else None
    world.odd_failure = died
    found = diagnose(world, "-c 4096 -np 16")
    check(found, world)
    assert found.verdict is not None
    assert found.verdict.kind is Kind.CRASH
    edge = found.boundary["-np"]
    assert (edge.served, edge.fails) == (6, 7)
    assert [world.specs[n - 1].command.number("-np") for n in edge.trials].count(6) == 2


def test_arenas_that_are_not_pinned_make_every_edge_uncertain() -> None:
    for value, runs in (("1", 1), ("4", 2)):
        world = World()
        found = diagnose(world, "-c 4096 -np 64", environ={"MALLOC_ARENA_MAX": value})
        check(found, world)
        edge = found.boundary["-np"]
        values = [world.specs[n - 1].command.number("-np") for n in edge.trials]
        assert values.count(edge.served) == runs


def test_a_context_is_not_searched_more_finely_than_runs_differ() -> None:
    """256 tokens are 1 MiB here, and runs differ by 4: values so near cannot be told apart."""
    noise = (0, 3, 1, 4, 0, 2, 3, 1, 4, 0, 2, 1, 3, 0, 4)
    world = World(Server(rs=0, kv=4096), noise=lambda n: noise[n % len(noise)] * MIB)
    found = diagnose(world, "-c 600000 -np 1", trained=1 << 20)
    check(found, world)
    edge = found.boundary["-c"]
    assert edge.served is not None
    assert edge.fails is not None
    assert edge.band is None
    assert edge.fails - edge.served <= 40 * 256, "2 % of what there is"
    assert len(edge.trials) <= 4


def test_the_first_guess_leaves_room_for_requests() -> None:
    """What they take no run has shown yet: by the start alone it would be one slot more."""
    world = World(Server(rs=61 * MIB))
    found = diagnose(world, "-c 4096 -np 64")
    check(found, world)
    assert found.trials[2].outcome is SERVED


# --- odd worlds ---------------------------------------------------------------------------------


@pytest.mark.parametrize("forecast", ["right", "none", "half", "double"])
@pytest.mark.parametrize("rs", [20, 64, 130])
def test_a_forecast_costs_launches_and_never_the_truth(forecast: str, rs: int) -> None:
    world = World(Server(rs=rs * MIB))
    forecasts = {
        "right": Knowing(world.server),
        "none": NoForecast(),
        "half": Knowing(world.server, lambda size: size // 2),
        "double": Knowing(world.server, lambda size: size * 2),
    }
    found = diagnose(world, "-c 4096 -np 100", forecasts[forecast])
    check(found, world)
    edge, server = found.boundary["-np"], world.server

    def most(extra: int) -> int:
        slots = range(1, 101)
        at = (n for n in slots if server.loaded(Point(n, 4096)) + extra <= world.capacity)
        return max(at, default=0)

    assert found.complete
    assert edge.served == most(server.serving) or "nothing was tried" in edge.note
    if edge.fails is not None:
        assert edge.fails > most(0)
    assert forecast != "right" or edge.fails == most(0) + 1


@pytest.mark.parametrize("hole", [9, 16, 21])
def test_an_edge_with_a_hole(hole: int) -> None:
    world = World()
    world.server.odd = lambda point: FAILED if point.slots == hole else None
    found = diagnose(world, "-c 4096 -np 64")
    check(found, world)
    assert found.boundary["-np"].served is not None


def test_ready_is_not_served() -> None:
    world = World(Server(serving=200 * MIB))
    found = diagnose(world, "-c 4096 -np 64")
    check(found, world)
    edge = found.boundary["-np"]
    assert (edge.served, edge.fails) == (19, 23)
    assert edge.ready in (21, 22)


def test_a_server_that_dies_of_its_requests() -> None:
    """It becomes ready, and dies on a request that the standard load does not reach."""
    world = World(Server(breaks_at=40))
    found = diagnose(world, "-c 4096 -np 2")
    check(found, world)
    assert found.verdict is not None
    assert (found.verdict.kind, found.verdict.trial) == (Kind.CRASH, 2)
    assert found.boundary == {}, "it has nothing to do with size"
    assert found.launches == 3
    assert found.recommendation is None


@pytest.mark.parametrize("at", [1, 2, 3, 5])
def test_a_variable_that_moved_makes_a_trial_worth_nothing(at: int) -> None:
    world = World(other_slots=lambda n: n == at)
    flags = f"-c 4096 -np 16 {BARE}"  # the small start is a point of the boundary of -c
    found = diagnose(world, flags, max_launches=30, limit=Limit(1600 * MIB, RAM.kind))
    check(found, world)
    assert [trial.n for trial in found.trials if not trial.valid] == [at] or at == 2
    wrong = found.trials[at - 1]
    if not wrong.valid:
        assert "became" in (wrong.why_invalid or "")
        assert wrong.purpose == found.trials[at].purpose
        assert all(at not in edge.trials for edge in found.boundary.values())
    assert found.complete


def test_a_variable_that_always_moves_ends_the_search() -> None:
    world = World(moved=lambda n: "nvml0: 512.00 MiB more in use than before" if n > 2 else None)
    found = diagnose(world, "-c 4096 -np 64")
    check(found, world)
    assert found.boundary == {}
    assert found.recommendation is None
    assert sum("does not count" in note for note in found.notes) == 2


@pytest.mark.parametrize("launches", range(1, 8))
def test_no_launch_left(launches: int) -> None:
    world, reporter = World(), Listening()
    found = diagnose(world, "-c 4096 -np 64", max_launches=launches, reporter=reporter)
    check(found, world)
    assert found.launches == launches
    assert found.complete is (launches == 7)
    assert found.complete or found.notes[-1].startswith(f"stopped after {launches} launches")
    assert reporter.saved[-1] == found
    assert reporter.heard == [trial.n for trial in found.trials if trial.valid]


@pytest.mark.parametrize("seconds", [0.5, 1.5, 2.5, 4.5, 6.5])
def test_no_time_left(seconds: float) -> None:
    world = World()
    found = diagnose(world, "-c 4096 -np 64", max_time=seconds)
    check(found, world)
    assert not found.complete
    assert world.clock <= seconds + 1
    assert found.notes[-1].endswith("--max-time leaves no room for another launch")


def test_a_trial_that_outlives_the_time_is_cut_off_and_proves_nothing() -> None:
    world = World(hang_at=3)
    found = diagnose(world, "-c 4096 -np 64", max_time=60.0)
    check(found, world)
    assert found.trials[-1].why_invalid == "cut off: --max-time ran out"
    assert found.boundary == {}
    assert (found.complete, world.clock) == (False, 60.0)


@pytest.mark.parametrize("at", range(1, 8))
def test_an_interruption_leaves_what_was_shown(at: int) -> None:
    world, reporter = World(interrupt_at=at), Listening()
    found = diagnose(world, "-c 4096 -np 64", reporter=reporter)
    check(found, world)
    assert (found.interrupted, found.complete) == (True, False)
    assert len(found.trials) == at - 1
    assert reporter.saved[-1] == found


@pytest.mark.parametrize("kind", [Kind.CONFIG, Kind.MODEL, Kind.ENVIRONMENT])
def test_what_no_memory_changes_takes_one_launch(kind: Kind) -> None:
    said = Failure(kind=kind, fatal=True, line=1, text="error", evidence=Evidence.NAMED)
    world = World(fails_with=said)
    found = diagnose(world, "-c 4096 -np 64")
    check(found, world)
    assert (found.launches, found.complete) == (1, True)
    assert found.verdict is not None
    assert found.verdict.kind is kind
    cpu = msgspec.structs.replace(said, cpu=Cpu(needs=("avx512f",)))
    assert len(diagnose(World(fails_with=cpu), "-np 4").notes) == 1


@pytest.mark.parametrize("devices", [False, True])
def test_even_the_smallest_start_fails(devices: bool) -> None:
    world = World(limit=Limit(400 * MIB, LimitKind.ADDRESS_SPACE))
    found = diagnose(world, "-c 4096 -np 64", devices=devices)
    check(found, world)
    assert found.boundary == {}
    assert len(found.trials) == 2 + devices
    assert not devices or found.trials[2].change["-ngl"] == (None, 0)
    assert any("devices are visible" in note for note in found.notes)


def test_a_log_takes_the_place_of_the_start_as_given() -> None:
    world = World()
    log = refused(Component.RS, 4096 * MIB, named=True)
    found = diagnose(world, "-c 4096 -np 64", from_log=log)
    check(found, world)
    assert found.verdict is not None
    assert (found.verdict.component, found.verdict.trial) == (Component.RS, None)
    assert all(trial.change for trial in found.trials)
    assert found.launches == 6
    assert found.boundary["-np"].served == 21


def test_the_name_that_a_log_lost_is_found_by_its_size() -> None:
    world = World(unnamed=lambda n: True)
    found = diagnose(world, "-c 4096 -np 64")
    check(found, world)
    assert found.verdict is not None
    assert found.verdict.component is Component.RS
    assert found.trials[2].purpose == "as given: once more, because the log does not name the cause"


def test_a_failure_that_does_not_come_twice_is_at_an_edge() -> None:
    world = World(unnamed=lambda n: True, noise=lambda n: 80 * MIB if n == 2 else 0)
    found = diagnose(world, f"-c 4096 -np 21 {BARE}")
    check(found, world)
    assert any("failed once and served once" in note for note in found.notes)


# --- other memory -------------------------------------------------------------------------------


def test_memory_of_a_card_is_counted_by_its_buffers() -> None:
    """What requests take there is not seen: no run is known to be clear of the edge."""
    world = World(limit=None, host_free=64 << 30, card=1600 * MIB)
    found = diagnose(world, f"-c 4096 -np 64 {BARE}")
    check(found, world)
    assert found.verdict is not None
    assert found.verdict.device == "CPU"
    edge = found.boundary["-np"]
    assert (edge.served, edge.fails) == (20, 21)
    values = [world.specs[n - 1].command.number("-np") for n in edge.trials]
    assert values.count(20) == 2


def test_a_context_that_is_too_long_is_cut() -> None:
    world = World(Server(rs=0, kv=500 << 10, compute=lambda point: 16 * MIB), limit=RAM)
    found = diagnose(world, f"-c 4096 -np 1 {BARE}")
    check(found, world)
    assert set(found.boundary) == {"-c"}
    best = found.recommendation
    assert best is not None
    assert best.costs == (Cost.CONTEXT,)
    assert best.changes[0].startswith("context 4096 → ")
    assert 2 in found.boundary["-c"].trials, "as given, which fails"


def test_fewer_slots_where_even_one_has_too_much_context() -> None:
    """One slot does not fit with the context as given, and so no number of slots does."""
    world = World(Server(rs=100 * MIB, kv=1 << 19, compute=lambda point: 16 * MIB), limit=RAM)
    found = diagnose(world, f"-c 4096 -np 4 {BARE}")
    check(found, world)
    assert found.boundary["-np"].served is None
    assert found.boundary["-c"].held["-np"] == 4


def test_a_smaller_micro_batch_comes_before_fewer_slots() -> None:
    def compute(point: Point) -> int:
        return (point.n_ubatch or 512) * 3 * MIB

    world = World(Server(rs=8 * MIB, compute=compute), limit=RAM)
    found = diagnose(world, f"-c 4096 -np 4 -ub 1024 {BARE}")
    check(found, world)
    assert found.verdict is not None
    assert found.verdict.component is Component.COMPUTE
    assert found.recommendation is None or found.recommendation.changes[0].startswith("micro")


# --- what could take the machine down -----------------------------------------------------------


def test_nothing_is_started_that_could_take_the_machine_down() -> None:
    world = World(limit=None, host_free=1500 * MIB)
    found = diagnose(world, "-c 4096 -np 64")
    check(found, world)
    assert (found.launches, found.verdict) == (1, None)
    assert any("--as-given" in note for note in found.notes)
    asked = World(limit=None, host_free=1500 * MIB)
    assert diagnose(asked, "-c 4096 -np 64", as_given=True).launches > 1
    tiny = World(limit=None, host_free=64 * MIB)
    found = diagnose(tiny, "-c 4096 -np 64")
    assert (found.launches, found.verdict) == (0, None)
    log = refused(Component.RS, 4096 * MIB, named=True)
    found = diagnose(World(limit=None, host_free=64 * MIB), "-np 64", from_log=log)
    assert (found.launches, found.verdict is None) == (0, False)


# --- a command that serves ----------------------------------------------------------------------


def test_a_command_that_serves_is_kept() -> None:
    world = World()
    found = diagnose(world, f"-c 4096 -np 2 {BARE}")
    check(found, world)
    assert (found.verdict, found.launches) == (None, 2)
    assert found.recommendation is not None
    assert found.recommendation.changes == ()
    assert found.recommendation.worst_case.fits


def test_caches_that_may_outgrow_the_memory_are_bounded() -> None:
    world = World(Server(checkpoint=20 * MIB))
    found = diagnose(world, "-c 4096 -np 2")
    check(found, world)
    assert (found.verdict, found.launches) == (None, 3)
    assert found.recommendation is not None
    assert found.recommendation.costs == (Cost.PROMPT_REUSE,)
    assert found.recommendation.worst_case.fits


# --- a slow model -------------------------------------------------------------------------------


@pytest.mark.parametrize("differs", [False, True])
def test_a_slow_model_is_searched_on_a_copy_and_confirmed(differs: bool) -> None:
    """A copy may be wrong: then the two runs of the real model say so, and nothing is claimed."""
    world = World(seconds_each=100.0, copy=Path("copy.gguf"))
    if differs:
        world.copy_server = replace(world.server, weights=0)
    found = diagnose(world, "-c 4096 -np 64", max_time=690.0, max_launches=40)
    check(found, world)
    edge = found.boundary["-np"]
    real = [n for n in edge.trials if world.specs[n - 1].command.value("-m") == "m.gguf"]
    assert [found.trials[n - 1].purpose.split(": ")[1] for n in real] == [
        "confirmed with weights"
    ] * len(real)
    assert (edge.served is None) is differs
    assert edge.note == ("runs of the model itself did not confirm it" if differs else "")
    assert sum("copy of the model" in note for note in found.notes) == 1


# --- automatic slots ----------------------------------------------------------------------------


@pytest.mark.parametrize("flags", ["", "-no-kvu", "-np -1 -no-kvu", "-kvu"])
def test_automatic_slots_are_searched_in_the_layout_that_they_have(flags: str) -> None:
    """The server shares one cache among slots that it chose itself, whatever -no-kvu says."""
    world = World(Server(rs=400 * MIB))
    found = diagnose(world, f"-c 4096 {flags}")
    check(found, world)
    layouts = {
        (trial.effective.n_seq_max, trial.effective.kv_unified)
        for trial in found.trials
        if (trial.effective.n_seq_max or 0) > 1
    }
    assert len(layouts) > 1
    assert all(unified for _, unified in layouts)


# --- any world ----------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(
    rs=st.integers(0, 300),
    kv=st.sampled_from([0, 256, 4096, 65536]),
    step=st.integers(0, 40),
    serving=st.integers(0, 300),
    limit=st.integers(600, 6000),
    kind=st.sampled_from([LimitKind.ADDRESS_SPACE, LimitKind.CGROUP]),
    slots=st.integers(1, 80),
    tokens=st.sampled_from([512, 4096, 30000]),
    noise=st.lists(st.integers(0, 30), min_size=1, max_size=7),
    flaky=st.sets(st.integers(1, 20), max_size=4),
    wrong=st.sampled_from(["right", "none", "half", "double"]),
    bare=st.booleans(),
    launches=st.integers(1, 24),
)
def test_no_number_without_a_trial_whatever_the_world(
    rs: int,
    kv: int,
    step: int,
    serving: int,
    limit: int,
    kind: LimitKind,
    slots: int,
    tokens: int,
    noise: list[int],
    flaky: set[int],
    wrong: str,
    bare: bool,
    launches: int,
) -> None:
    server = Server(
        rs=rs * MIB, kv=kv, serving=serving * MIB, arenas=300 * MIB, cached=500 * MIB,
        compute=lambda point: (10 + step * (point.slots // 5)) * MIB,
    )  # fmt: skip
    world = World(
        server,
        limit=Limit(limit * MIB, kind),
        noise=lambda n: noise[n % len(noise)] * MIB,
        flaky=frozenset(flaky),
    )
    forecasts = {
        "right": Knowing(server),
        "none": NoForecast(),
        "half": Knowing(server, lambda size: size // 2),
        "double": Knowing(server, lambda size: size * 2),
    }
    flags = f"-c {tokens} -np {slots} {BARE if bare else ''}"
    reporter = Listening()
    found = diagnose(world, flags, forecasts[wrong], max_launches=launches, reporter=reporter)
    check(found, world)
    assert found.launches <= launches
    assert found.complete or found.notes
    for record in reporter.saved:
        assert record.launches <= launches
        for edge in record.boundary.values():
            assert edge.trials


def test_the_standard_load_is_asked_of_every_point() -> None:
    world = World()
    found = diagnose(world, "-c 4096 -np 64")
    assert all(t.requests.sent >= STANDARD for t in found.trials if t.outcome is SERVED)
