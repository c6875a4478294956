"""Every system can import the room; which way it starts processes depends on the system."""

from __future__ import annotations

import sys

import pytest

from arriero.process import run

SCRIPT = """
import sys, psutil, subprocess, ctypes, signal, tempfile, shutil, selectors, socket
sys.platform = {platform!r}
sys.modules["fcntl"] = sys.modules["resource"] = None
import arriero.process
print(arriero.process.start.__module__, arriero.process.Running.__module__)
"""


@pytest.mark.parametrize(
    ("platform", "module"), [("win32", "plain"), ("darwin", "running"), ("linux", "running")]
)
def test_importing_needs_nothing_of_one_system(platform: str, module: str) -> None:
    done = run([sys.executable, "-c", SCRIPT.format(platform=platform)], env={}, timeout=60)
    assert done.stdout.split() == [f"arriero.process.{module}"] * 2, done.stderr
