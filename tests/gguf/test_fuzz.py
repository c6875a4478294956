"""Headers that lie, read and planned by ``bench/fuzz.py``: each gives a plan or one clear error."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

FUZZ = Path(__file__).parents[2] / "bench" / "fuzz.py"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits memory as Linux does")


def fuzz(cases: int) -> dict[str, int]:
    """How many cases ended in what."""
    argv = [sys.executable, str(FUZZ), "--cases", str(cases)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return {
        outcome: int(count)
        for count, outcome in re.findall(r"^ *(\d+)  (.+)$", done.stdout, re.MULTILINE)
    }


@pytest.mark.thorough
def test_some_headers_that_lie() -> None:
    outcomes = fuzz(2_000)
    assert outcomes["failures"] == 0
    assert sum(outcomes.values()) > 2_000
    # lies that the reader finds would leave the planner untried
    assert outcomes["plan"] > 600
    assert outcomes["plan: model"] > 60


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_headers_that_lie() -> None:
    """A hundred thousand are run by hand: ``python bench/fuzz.py``."""
    assert fuzz(20_000)["failures"] == 0


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("bytes(80 << 20)", "MemoryError"),
        ("any(0 for _ in iter(int, 1))", "HangError"),
        ("{}[1]", "KeyError"),
    ],
)
def test_what_is_looked_for_is_found(wrong: str, says: str) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(FUZZ.parent)!r}); import fuzz; fuzz.prepared(); "
        f"fuzz.run = lambda case: {wrong} and 'plan'; print(fuzz.work(0, 1).failures)"
    )
    argv = [sys.executable, "-c", code]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert says in done.stdout
