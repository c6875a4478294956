"""What is left when Arriero and its guard were both killed."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from arriero.process import cgroup, scratch_directory, sweep
from arriero.process.guard import LOCK
from tests.process import watching
from tests.process.test_death import Parent, guard_of

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc"),
    pytest.mark.timeout(300),
]


@pytest.fixture
def parent(tmp_path: Path) -> Iterator[Parent]:
    one = Parent(tmp_path)
    yield one
    one.clean()


def test_the_next_start_ends_and_removes_what_both_left(parent: Parent, tmp_path: Path) -> None:
    parent.scratch = tmp_path / "arriero-1-x"
    parent.begin(["sh", "-c", "setsid sleep 600 & echo ready; wait"])
    parent.until("ready")
    assert sweep(tmp_path) == ()
    assert watching.eventually(lambda: len(parent.left()) > 3)
    guard = guard_of(parent)
    assert parent.process is not None
    os.kill(parent.process.pid, signal.SIGSTOP)
    os.kill(guard, signal.SIGKILL)
    parent.end(signal.SIGKILL)
    assert watching.eventually(lambda: len(parent.left()) == 1)
    assert parent.scratch.exists()
    assert sweep(tmp_path) == (parent.scratch,)
    assert not parent.scratch.exists()
    assert watching.eventually(lambda: not parent.left())


def test_a_directory_in_use_or_of_somebody_else_stays(tmp_path: Path) -> None:
    (tmp_path / "arriero-notes").mkdir()
    (tmp_path / "arriero-notes" / "todo").touch()
    (tmp_path / "arriero-new").mkdir()
    (tmp_path / "arriero-link").symlink_to(tmp_path / "arriero-notes")
    with scratch_directory(tmp_path) as mine:
        assert sweep(tmp_path) == ()
        assert mine.exists()
    assert sweep(tmp_path / "nowhere") == ()


def test_an_abandoned_directory_goes_with_all_that_is_in_it(tmp_path: Path) -> None:
    full, empty = tmp_path / "arriero-full", tmp_path / "arriero-empty"
    (full / "deep").mkdir(parents=True)
    (full / LOCK).touch()
    empty.mkdir()
    os.utime(empty, (0, 0))
    assert sweep(tmp_path) == (empty, full)
    assert list(tmp_path.iterdir()) == []


def test_an_abandoned_cgroup_goes() -> None:
    here = cgroup.own()
    if here is None or not os.access(here.path, os.W_OK):
        pytest.skip("no memory cgroup may be made here")
    path = here.path / "arriero-999999999-1"
    path.mkdir()
    sweep(Path("/nonexistent"))
    assert not path.exists()
