"""Broken files of commands, read by ``bench/fuzz_files.py``: a check or one clear error each."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from arriero.base.errors import ArrieroError
from arriero.jobs.check import CheckOptions, check_file, fixed_lines

FUZZ = Path(__file__).parents[2] / "bench" / "fuzz_files.py"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits time as Linux does")


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
def test_some_broken_files() -> None:
    outcomes = fuzz(400)
    assert outcomes["failures"] == 0
    assert outcomes["check"] > 80


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_broken_files() -> None:
    """Ten thousand are run by hand: ``python bench/fuzz_files.py``."""
    assert fuzz(3_000)["failures"] == 0


@pytest.mark.parametrize(
    "text",
    [
        'eval "llama-server -m e.gguf"',
        "eval llama-server",
        "eval 'eval \"llama-server -m e.gguf\"'",
        "eval $X llama-server -m e",
        "eval",
        "exec",
        "sudo -u a",
        'bash -c ""',
        "bash -c 'eval'",
        "docker run llama.cpp:server",
        "docker run",
        "env A=1",
        "llama-server",
        'llama-server -m "',
    ],
)
def test_a_command_that_hardly_is_one(text: str, tmp_path: Path) -> None:
    path = tmp_path / "a.sh"
    path.write_text(f"{text}\n")
    try:
        lines = fixed_lines(check_file(path, CheckOptions(assume_build=10434), cwd=tmp_path))
    except ArrieroError:
        return
    assert all(lines)
