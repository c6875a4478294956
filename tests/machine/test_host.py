"""Host memory: the least of what limits it, by name."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.base.words import LimitKind
from arriero.machine import files, host_bounds, host_pool
from arriero.process import Limit, ProcessError, start
from tests.machine import trees
from tests.machine.trees import GIB

UNLIMITED_V1 = 9223372036854771712


def test_the_system_alone(tmp_path: Path) -> None:
    pool = host_pool(trees.host(tmp_path, 64 * GIB, 50 * GIB))
    assert (pool.name, pool.devices, pool.usable) == ("host", ("host",), True)
    assert (pool.total, pool.free, pool.limited_by) == (64 * GIB, 50 * GIB, "MemAvailable")


def test_a_ulimit_below_everything(tmp_path: Path) -> None:
    pool = host_pool(trees.host(tmp_path, 64 * GIB, 50 * GIB, address_space=8 * GIB))
    assert (pool.total, pool.free, pool.limited_by) == (8 * GIB, 8 * GIB, "ulimit -v")


def test_version_1_counts_every_ancestor_and_not_the_page_cache(tmp_path: Path) -> None:
    trees.host(tmp_path, 64 * GIB, 50 * GIB)
    trees.cgroup_v1(
        tmp_path,
        "/outer/inner",
        {
            "": (UNLIMITED_V1, 60 * GIB, 0),
            "/outer": (16 * GIB, 12 * GIB, 3 * GIB),
            "/outer/inner": (20 * GIB, 6 * GIB, 2 * GIB),
        },
    )
    pool = host_pool(tmp_path)
    assert pool.limited_by == "cgroup v1 memory.limit_in_bytes /outer"
    assert (pool.total, pool.free) == (16 * GIB, 7 * GIB)
    assert {bound.name: bound.free for bound in host_bounds(tmp_path)} == {
        "MemAvailable": 50 * GIB,
        "cgroup v1 memory.limit_in_bytes /outer": 7 * GIB,
        "cgroup v1 memory.limit_in_bytes /outer/inner": 16 * GIB,
    }


def test_version_2_counts_high_as_a_limit(tmp_path: Path) -> None:
    trees.host(tmp_path, 64 * GIB, 50 * GIB)
    trees.cgroup_v2(
        tmp_path,
        "/user.slice/app",
        {
            "/user.slice": ("max", "max", 20 * GIB, 0),
            "/user.slice/app": (str(10 * GIB), str(8 * GIB), 3 * GIB, GIB),
        },
    )
    pool = host_pool(tmp_path)
    assert pool.limited_by == "cgroup v2 memory.high /user.slice/app"
    assert (pool.total, pool.free) == (8 * GIB, 6 * GIB)


def test_a_container_sees_its_limit_at_the_root(tmp_path: Path) -> None:
    trees.host(tmp_path, 64 * GIB, 50 * GIB)
    trees.cgroup_v2(tmp_path, "/", {"": (str(4 * GIB), "max", 5 * GIB, 0)})
    pool = host_pool(tmp_path)
    assert (pool.free, pool.limited_by) == (0, "cgroup v2 memory.max /")


def test_nothing_readable_is_unknown(tmp_path: Path) -> None:
    pool = host_pool(tmp_path)
    assert (pool.total, pool.free, pool.usable) == (None, None, False)


@given(st.binary(max_size=300))
def test_damaged_files_are_no_numbers(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.mktemp("damaged") / "file"
    path.write_bytes(content)
    assert (files.number(path) or 0) >= 0
    assert all(value >= 0 for value in files.table(path, ":").values())


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_this_machine() -> None:
    pool = host_pool()
    assert pool.total is not None
    assert pool.free is not None
    assert 0 < pool.free <= pool.total


@pytest.mark.skipif(sys.platform != "linux", reason="sets limits")
@pytest.mark.parametrize("kind", list(LimitKind))
def test_a_real_limit_of_this_machine_is_named(kind: LimitKind) -> None:
    """The question is asked from inside a real limit."""
    lines: list[str] = []
    script = "from arriero.machine import host_pool as h; p = h(); print(p.total, p.limited_by)"
    limit = Limit(768 << 20, kind)
    try:
        running = start([sys.executable, "-c", script], env={}, on_line=lines.append, limit=limit)
    except ProcessError as error:
        pytest.skip(error.message)
    with running:
        running.wait(60)
    total, _, name = lines[-1].partition(" ")
    assert int(total) == limit.bytes
    assert name.startswith("ulimit -v" if kind is LimitKind.ADDRESS_SPACE else "cgroup v")
