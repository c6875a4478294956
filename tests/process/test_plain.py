"""The way without a guard, meant for Windows; run here as far as this system allows."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from arriero.base.errors import NotFoundError
from arriero.base.words import LimitKind
from arriero.process import Exit, Limit, ProcessError, plain
from tests.process import watching

pytestmark = pytest.mark.timeout(300)
ENV = dict(os.environ)
TREE = "import subprocess as s, sys, time; s.Popen(['sleep', '600']); print('up', flush=True); "


def python(script: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", script]


def test_output_status_and_scratch(tmp_path: Path) -> None:
    lines: list[str] = []
    scratch = tmp_path / "scratch"
    with plain.start(
        python("import sys; print(1); sys.exit(3)"), env=ENV, on_line=lines.append, scratch=scratch
    ) as running:
        assert running.wait(60) == Exit(3)
        assert lines == ["1"]
        assert scratch.exists()
    assert not scratch.exists()


def test_the_tree_ends_when_it_is_left() -> None:
    lines: list[str] = []
    with plain.start(python(TREE + "time.sleep(600)"), env=ENV, on_line=lines.append) as running:
        assert watching.eventually(lambda: lines == ["up"])
        assert running.poll() is None
        assert (running.memory().rss or 0) > 0
    assert running.poll() == Exit(-signal.SIGKILL)


def test_the_tree_ends_with_the_command() -> None:
    lines: list[str] = []
    script = TREE + "time.sleep(1)"
    with plain.start(python(script), env=ENV, on_line=lines.append) as running:
        assert running.wait(60) == Exit(0)


def test_stop() -> None:
    with plain.start(python("import time; time.sleep(600)"), env=ENV, on_line=print) as running:
        assert running.stop(30) == Exit(-signal.SIGTERM)


def test_run() -> None:
    script = "import sys; print('a' * 9); print('b', file=sys.stderr); sys.exit(2)"
    done = plain.run(python(script), env=ENV, timeout=60, max_output=4)
    assert (done.status, done.stdout, done.stderr, done.truncated) == (2, "aaaa", "b\n", True)
    both = plain.run_at_once([python("print(1)"), python("print(2)")], env=ENV, timeout=60)
    assert [one.stdout for one in both] == ["1\n", "2\n"]
    with pytest.raises(ProcessError, match="did not answer"):
        plain.run(python("import time; time.sleep(600)"), env=ENV, timeout=0.3)


def test_what_it_cannot_do_is_said(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        plain.run([tmp_path / "absent"], env=ENV, timeout=60)
    with pytest.raises(ProcessError, match="cannot execute"):
        plain.run([tmp_path], env=ENV, timeout=60)
    limit = Limit(1 << 30, LimitKind.ADDRESS_SPACE)
    with pytest.raises(ProcessError, match="cannot limit the memory"):
        plain.start(["x"], env=ENV, on_line=print, limit=limit)
    with plain.scratch_directory(tmp_path) as path:
        assert path.is_dir()
    assert not path.exists()
