"""The boundary search: right whatever the prediction is worth, quick where it is good."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from arriero.experiment.search import Search, bisection_launches


def play(search: Search, edge: int, predict: int | None, limit: int = 200) -> int:
    """Run a search against a world in which values up to ``edge`` work; the number of launches."""
    launches = 0
    while (value := search.next(predict)) is not None:
        assert search.low <= value <= search.high
        assert (value - search.low) % search.step == 0
        launches += 1
        assert launches < limit
        search.observe(value, works=value <= edge)
    return launches


def test_a_right_prediction_needs_three_launches() -> None:
    search = Search(1, 64)
    assert play(search, 34, 34) == 3
    assert (search.shown, search.edge) == (34, 35)


def test_a_prediction_off_by_one_needs_one_more_at_most() -> None:
    for predicted, launches in ((33, 4), (35, 3)):
        search = Search(1, 64)
        assert play(search, 34, predicted) == launches
        assert (search.shown, search.edge) == (34, 35)


def test_nothing_works() -> None:
    search = Search(1, 64)
    play(search, 0, None)
    assert (search.shown, search.edge) == (None, 1)


def test_everything_works() -> None:
    search = Search(256, 8192, 256)
    assert play(search, 10**9, 10**9) == 2
    assert (search.shown, search.edge) == (8192, None)


@given(
    high=st.integers(1, 3000),
    step=st.sampled_from([1, 256]),
    edge=st.integers(-1, 3100),
    predicted=st.none() | st.integers(-10, 5000),
)
def test_always_ends_next_to_the_edge(
    high: int, step: int, edge: int, predicted: int | None
) -> None:
    low, top, edge = step, high * step, edge * step
    search = Search(low, top, step)
    launches = play(search, edge, predicted and predicted * step)
    assert search.shown == (None if edge < low else min(edge, top))
    assert search.edge == (None if edge >= top else max(low, edge + step))
    assert launches <= bisection_launches(low, top, step) + 6


@settings(max_examples=200)
@given(seed=st.integers(0, 10**6), edge=st.integers(5, 60), fuzz=st.integers(0, 4))
def test_ends_with_a_band_where_runs_disagree(seed: int, edge: int, fuzz: int) -> None:
    rng = random.Random(seed)
    search = Search(1, 64)
    for _ in range(200):
        value = search.next(edge)
        if value is None:
            break
        search.observe(value, works=value <= edge + rng.randint(-fuzz, fuzz))
    else:
        raise AssertionError("the search does not end")
    if search.shown is not None:
        assert search.shown <= edge + fuzz
        assert search.edge is None or search.edge > search.shown
    if search.band is not None:
        low, high = search.band
        assert low <= high
