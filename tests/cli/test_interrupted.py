"""A signal that meets code in which Python drops exceptions stops the command all the same."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

FINALIZER = """
import os, signal, time, weakref
from arriero.cli import _main

class Thing:
    def __del__(self):
        if {where!r} == "__del__":
            os.kill(os.getpid(), signal.{name})
            time.sleep(0.01)

def met(_):
    if {where!r} == "weakref":
        os.kill(os.getpid(), signal.{name})
        time.sleep(0.01)

def run(argv):
    thing = Thing()
    reference = weakref.ref(thing, met)
    del thing
    try:
        time.sleep(30)
    except KeyboardInterrupt:
        print("cleaned up")
        return 130
    return 1

_main.run = run
_main.main()
"""


@pytest.mark.parametrize("where", ["__del__", "weakref"])
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_in_a_finalizer(where: str, name: str) -> None:
    script = FINALIZER.format(where=where, name=signal.Signals[name].name)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "cleaned up\n", "")


def test_other_exceptions_of_finalizers_are_told() -> None:
    script = FINALIZER.format(where="nowhere", name="SIGINT").replace(
        "if 'nowhere' == \"__del__\":", "raise ValueError('of a finalizer')\n        if 0:", 1
    ).replace("time.sleep(30)", "pass")  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "ValueError: of a finalizer" in done.stderr
