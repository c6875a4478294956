"""When memory runs out under a server, and when a restart helps."""

from __future__ import annotations

import contextlib
import json
import math
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.base.sizes import GIB, MIB
from arriero.base.words import LimitKind
from arriero.gguf import write_model
from arriero.gguf.presets import tiny
from arriero.machine import Bound, Holder
from arriero.machine.host import ULIMIT
from arriero.process import Limit, MemoryUse, ProcessError, start
from arriero.serve.memory_watch import HOST, MemoryWatch, Reading, Shortage, readings, slope
from tests.process import watching

RESERVE = 512 * MIB


def watched(
    seconds: int,
    free: Callable[[int], int],
    engine: Callable[[int], int | None],
    **more: object,
) -> Shortage | None:
    """The first reason for a restart within so many seconds, one reading every 5."""
    watch = MemoryWatch(RESERVE, **more)  # type: ignore[arg-type]
    for at in range(0, seconds, 5):
        found = watch.take({HOST: Reading(at, free(at), engine(at), 16 * GIB)})
        if found:
            return found
    return None


def test_nothing_moves() -> None:
    assert watched(3600, lambda at: GIB, lambda at: 4 * GIB) is None


def test_what_goes_slowly_is_waited_for_and_acted_on_before_its_end() -> None:
    """1 MiB a second from 8 GiB: the reserve is reached after 7,680 s, the restart comes before."""
    free, engine = (lambda at: 8 * GIB - at * MIB), (lambda at: GIB + at * MIB)
    assert watched(7500, free, engine) is None
    found = watched(7680, free, engine)
    assert found is not None
    assert not found.at_once
    assert found.free > RESERVE
    assert found.grown > 7 * GIB


def test_what_comes_at_once_is_acted_on_at_once() -> None:
    found = watched(
        60,
        lambda at: GIB if at < 30 else 100 * MIB,
        lambda at: GIB if at < 30 else 2 * GIB,
    )
    assert found == Shortage(HOST, 100 * MIB, GIB, at_once=True)
    assert "100.00 MiB are left of host" in str(found)


def test_what_another_process_takes_does_not_come_back_by_a_restart() -> None:
    assert watched(3600, lambda at: max(0, 2 * GIB - at * MIB), lambda at: GIB) is None


def test_what_another_process_mostly_takes_is_none_of_the_engines() -> None:
    """Until the reserve is touched; then whatever the engine gives back is of use."""
    free, engine = (lambda at: 8 * GIB - 10 * at * MIB), (lambda at: GIB + at * MIB)
    found = watched(3600, free, engine)
    assert found is not None
    assert found.at_once


def test_growth_that_ends_within_the_pool_is_let_grow() -> None:
    """A prompt cache that fills up to 1 GiB, 8 MiB a second, with 1.6 GiB to take from."""
    full = GIB

    def taken(at: int) -> int:
        return min(8 * at * MIB, full)

    free, engine = (lambda at: 1638 * MIB - taken(at)), (lambda at: GIB + taken(at))
    assert watched(3600, free, engine, growth={HOST: full}) is None
    early = watched(3600, free, engine)
    assert early is not None, "without the plan nothing says that it ends"
    assert early.free > RESERVE


def test_growth_beyond_what_was_planned_is_feared() -> None:
    free, engine = (lambda at: 8 * GIB - 8 * at * MIB), (lambda at: GIB + 8 * at * MIB)
    assert watched(3600, free, engine, growth={HOST: 256 * MIB}) is not None


def test_unknown_holders_of_a_card_are_no_reason() -> None:
    assert watched(3600, lambda at: max(0, 2 * GIB - at * MIB), lambda at: None) is None


def test_a_new_start_begins_at_nothing() -> None:
    watch = MemoryWatch(RESERVE)
    first = Reading(0, 2 * GIB, GIB)
    low = replace(first, at=2, free=100 * MIB, engine=2 * GIB)
    assert watch.take({HOST: first}) is None
    assert watch.take({HOST: low}) is not None
    watch.begun()
    assert watch.take({HOST: low}) is None, "it was so before"
    assert watch.trend(HOST) is None


def test_a_reserve_that_even_a_fresh_engine_does_not_leave_is_no_reserve() -> None:
    """Else every bit of growth would be a restart, and none would help."""
    watch = MemoryWatch(RESERVE)
    first = Reading(0, 400 * MIB, GIB)
    watch.take({HOST: first})
    grown = replace(first, at=2, free=300 * MIB, engine=GIB + 100 * MIB)
    assert watch.take({HOST: grown}) is None
    assert watch.take({HOST: replace(grown, at=4, free=150 * MIB)}) is not None


def test_a_card_is_filled_on_purpose() -> None:
    watch = MemoryWatch(RESERVE)
    full = Reading(0, 500 * MIB, 20 * GIB, 24 * GIB)
    watch.take({"nvml0": replace(full, free=2 * GIB)})
    assert watch.take({"nvml0": replace(full, at=2, engine=21 * GIB)}) is None
    last = replace(full, at=4, engine=21 * GIB, free=400 * MIB)
    assert watch.take({"nvml0": last}) is not None


def test_few_readings_are_kept_however_long_it_runs() -> None:
    watch = MemoryWatch(RESERVE)
    for at in range(5000):
        watch.take({HOST: Reading(at / 10, 8 * GIB - at * MIB // 10, GIB)})
    trend = watch.trend(HOST)
    assert trend is not None
    assert math.isclose(trend.lost, MIB, rel_tol=0.01)
    assert len(watch._series[HOST]) <= 61


@given(
    st.floats(-1e6, 1e6),
    st.lists(st.integers(0, 10**6), min_size=5, max_size=30, unique=True),
    st.data(),
)
def test_one_wrong_reading_changes_no_trend(
    rate: float, at: list[int], data: st.DataObject
) -> None:
    points = [(float(x), rate * x) for x in sorted(at)]
    wrong = data.draw(st.integers(0, len(points) - 1))
    points[wrong] = (points[wrong][0], data.draw(st.floats(-1e12, 1e12)))
    assert math.isclose(slope(points), rate, rel_tol=1e-3, abs_tol=1e-3)


# --- what is read ---------------------------------------------------------------------------------


def bounds() -> Iterator[Bound]:
    yield Bound("MemAvailable", 32 * GIB, 20 * GIB)
    yield Bound("cgroup v2 memory.max /user.slice", 8 * GIB, 3 * GIB)
    yield Bound(ULIMIT, 10 * GIB, 10 * GIB)


def test_the_tightest_limit_counts_and_address_space_is_its_own() -> None:
    use = MemoryUse(anonymous=2 * GIB, address_space=9 * GIB, rss=6 * GIB)
    read = readings(5.0, 1, use, bounds=bounds, held=list)
    assert read[HOST] == Reading(5.0, 3 * GIB, 2 * GIB, 8 * GIB)
    assert read[ULIMIT] == Reading(5.0, GIB, 9 * GIB, 10 * GIB)


def test_a_limit_of_the_engine_alone() -> None:
    use = MemoryUse(anonymous=2 * GIB, address_space=9 * GIB)
    limit = Limit(int(2.5 * GIB), LimitKind.CGROUP)
    read = readings(5.0, 1, use, limit, bounds=bounds, held=list)
    assert read[HOST] == Reading(5.0, GIB // 2, 2 * GIB, int(2.5 * GIB))


def test_an_engine_that_has_ended_has_no_share() -> None:
    def held() -> list[Holder]:
        return [Holder(1, "llama-server", "nvml0", GIB)]

    read = readings(5.0, 1, MemoryUse(), bounds=bounds, held=held)
    assert read[HOST].engine is None
    assert ULIMIT not in read


# --- a real engine that grows, under a real limit -------------------------------------------------


_LISTENING = re.compile(r"listening on http://127\.0\.0\.1:(\d+)")
ROOM, LEFT = 300 * MIB, 100 * MIB


class Grower:
    """An engine that keeps every prompt it has read, 32 MiB each, up to 4 GiB."""

    def __init__(self, engine: Path, model: Path, limit: Limit | None) -> None:
        self.lines: list[str] = []
        self.limit, self.asked = limit, 0
        argv: list[str | Path] = [
            engine,
            "-m",
            model,
            "--port",
            "0",
            "-np",
            "1",
            "-c",
            "1024",
            "-t",
            "1",
        ]
        self.running = start(
            [
                *argv,
                "-cram",
                "4096",
                "-ctk",
                "f32",
                "-ctv",
                "f32",
                "-fa",
                "off",
                "--no-warmup",
                "-lv",
                "4",
            ],
            env={"LD_LIBRARY_PATH": str(engine.parent), "MALLOC_ARENA_MAX": "1"},
            on_line=self.lines.append,
            limit=limit,
        )

    def ask(self) -> None:
        """A prompt that is unlike the ones before."""
        assert watching.eventually(lambda: self.port() is not None)
        self.asked += 1
        prompt = [(self.asked * 131 + n * n) % 200 + 3 for n in range(256)]
        connection = HTTPConnection("127.0.0.1", self.port(), timeout=60)
        with closing(connection):
            connection.request(
                "POST", "/completion", json.dumps({"prompt": prompt, "n_predict": 1})
            )
            assert connection.getresponse().status == 200

    def port(self) -> int | None:
        found = (_LISTENING.search(line) for line in self.lines)
        return next((int(one[1]) for one in found if one), None)

    def readings(self) -> dict[str, Reading]:
        use = self.running.memory()
        return readings(float(self.asked), self.running.pid, use, self.limit)

    def __enter__(self) -> Grower:
        return self

    def __exit__(self, *_: object) -> None:
        self.running.close()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """128 KiB of KV cache for each token."""
    shape = tiny("llama", heads=32, heads_kv=32, head_dim=128)
    return write_model(tmp_path_factory.mktemp("model") / "m.gguf", shape, weights="zeros")


def begun(engine: Path, model: Path, kind: LimitKind) -> Limit:
    """A limit that leaves ``ROOM`` to what the engine has after two requests."""
    with Grower(engine, model, None) as free:
        for _ in range(2):
            free.ask()
        use = free.running.memory()
    taken = use.anonymous if kind is LimitKind.CGROUP else use.address_space
    assert taken is not None
    return Limit(taken + ROOM, kind)


@pytest.mark.engine
@pytest.mark.skipif(sys.platform != "linux", reason="sets a limit")
@pytest.mark.parametrize("kind", list(LimitKind))
def test_an_engine_that_grows_is_restarted_before_its_limit(
    kind: LimitKind, model: Path, engine_path: Callable[[int], Path]
) -> None:
    engine = engine_path(10434)
    limit = begun(engine, model, kind)
    pool = HOST if kind is LimitKind.CGROUP else ULIMIT
    watch = MemoryWatch(LEFT)
    try:
        first = Grower(engine, model, limit)
    except ProcessError as error:
        pytest.skip(error.message)
    with first:
        first.ask()
        found = watch.take(first.readings())
        while found is None and first.asked < 40:
            first.ask()
            found = watch.take(first.readings())
        assert first.running.poll() is None
        assert found is not None
        assert found.pool == pool
        assert 0 < found.free < ROOM
        assert found.grown > ROOM - LEFT - 100 * MIB
        if kind is LimitKind.CGROUP:
            with contextlib.suppress(OSError, HTTPException):
                while first.asked < 60:
                    first.ask()
            ended = first.running.wait(30)
            assert ended is not None
            assert ended.oom_kills, "this is what it was spared"
    watch.begun()
    with Grower(engine, model, limit) as second:
        second.ask()
        assert watch.take(second.readings()) is None
