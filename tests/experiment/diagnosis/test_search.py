"""The boundary search: right whatever the predictions are worth, quick where they are good."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from arriero.base.words import TrialOutcome
from arriero.experiment.diagnosis.search import Search, bisection_launches


def outcome(value: int, serves: int, starts: int) -> TrialOutcome:
    if value <= serves:
        return TrialOutcome.SERVED
    return TrialOutcome.READY if value <= starts else TrialOutcome.FAILED


def play(
    search: Search,
    serves: int,
    starts: int,
    predicted: tuple[int | None, int | None],
    limit: int = 60,
) -> int:
    """Search a world in which values up to ``serves`` serve and up to ``starts`` start."""
    launches = 0
    while (value := search.next(*predicted)) is not None:
        assert search.low <= value <= search.high
        assert (value - search.low) % search.step == 0
        launches += 1
        assert launches < limit
        search.observe(value, outcome(value, serves, starts))
    return launches


def test_right_predictions_need_three_launches_where_the_edges_meet() -> None:
    search = Search(1, 64)
    assert play(search, 34, 34, (34, 34)) == 3
    assert (search.shown, search.largest_ready, search.fails) == (34, 34, 35)


def test_right_predictions_need_four_where_something_lies_between() -> None:
    search = Search(1, 64)
    assert play(search, 32, 33, (32, 33)) == 4
    assert (search.shown, search.largest_ready, search.fails) == (32, 33, 34)


def test_slightly_wrong_predictions_cost_a_launch_or_two() -> None:
    for serves in (31, 33):
        search = Search(1, 64)
        assert play(search, 32, 33, (serves, 34)) <= 6
        assert search.shown == 32


def test_nothing_works() -> None:
    search = Search(1, 64)
    play(search, 0, 0, (None, None))
    assert (search.shown, search.fails) == (None, 1)


def test_everything_works() -> None:
    search = Search(256, 8192, 256)
    assert play(search, 10**9, 10**9, (10**9, 10**9)) == 2
    assert (search.shown, search.edge) == (8192, None)


def test_a_run_that_was_clear_of_the_edge_is_enough_unless_runs_disagree() -> None:
    search = Search(1, 64)
    search.observe(20, TrialOutcome.SERVED, clear=True)
    search.observe(21, TrialOutcome.FAILED)
    shown = [search.shown]
    search.observe(22, TrialOutcome.SERVED, clear=True)
    assert search.band == (20, 22)
    shown.append(search.shown)
    search.observe(20, TrialOutcome.SERVED)
    assert [*shown, search.shown] == [20, None, 20]


def test_what_is_known_costs_no_launch() -> None:
    search = Search(1, 64)
    search.know(64, TrialOutcome.FAILED)
    assert play(search, 34, 34, (34, 34)) == 3
    assert (search.shown, search.fails, search.launches) == (34, 35, 3)
    search = Search(1, 64)
    search.know(35, TrialOutcome.FAILED)
    assert play(search, 34, 34, (34, 34)) == 2


def test_values_within_the_grain_are_not_told_apart() -> None:
    search = Search(256, 1 << 20, 256)
    value = 400_128 // 256 * 256
    search.observe(value, TrialOutcome.SERVED, clear=True)
    search.observe(value + 10 * 256, TrialOutcome.FAILED)
    assert search.next(value, value + 9 * 256, 16) is None
    assert search.next(value + 5 * 256, value + 9 * 256, 1) == value + 5 * 256


@given(
    high=st.integers(1, 3000),
    step=st.sampled_from([1, 256]),
    serves=st.integers(-1, 3100),
    between=st.integers(0, 50),
    predicted=st.none() | st.integers(-10, 5000),
)
def test_always_ends_and_never_claims_what_was_not_seen(
    high: int, step: int, serves: int, between: int, predicted: int | None
) -> None:
    low, top, serves, starts = step, high * step, serves * step, (serves + between) * step
    guess = None if predicted is None else predicted * step
    search = Search(low, top, step)
    launches = play(search, serves, starts, (guess, guess))
    assert launches <= bisection_launches(low, top, step) + 8
    if search.shown is not None:
        assert search.shown <= serves
        assert search.served[search.shown] >= 2
    if search.fails is not None:
        assert search.fails > starts
    if serves < low:
        assert search.shown is None
    if guess is None:
        assert search.shown == (None if serves < low else min(serves, top))


@settings(max_examples=200)
@given(seed=st.integers(0, 10**6), edge=st.integers(5, 60), fuzz=st.integers(0, 4))
def test_ends_where_runs_disagree(seed: int, edge: int, fuzz: int) -> None:
    rng = random.Random(seed)
    search = Search(1, 64)
    for _ in range(60):
        value = search.next(edge, edge)
        if value is None:
            break
        at = edge + rng.randint(-fuzz, fuzz)
        search.observe(value, outcome(value, at, at))
    else:
        raise AssertionError("the search does not end")
    if search.shown is not None:
        assert search.shown <= edge + fuzz
        assert search.edge is None or search.edge > search.shown
    if search.band is not None:
        low, high = search.band
        assert low <= high
