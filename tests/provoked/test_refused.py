"""What the engine refuses: options, files, a port that is taken."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from itertools import repeat
from pathlib import Path

import pytest

from arriero.base.words import Evidence, Kind, LogOutcome, Phase, TrialOutcome
from arriero.gguf.presets import tiny
from arriero.logs import read_log
from arriero.process import clean_environment, start
from tests.provoked.provoking import QUIET_VULKAN, Lab, Models, first_named, named

pytestmark = pytest.mark.engine


def refusal(kind: Kind, phase: Phase | None) -> dict[str, object]:
    return {
        "kind": kind,
        "component": None,
        "device": None,
        "bytes": None,
        "buffer_bytes": None,
        "phase": phase,
        "fatal": True,
        "evidence": Evidence.NAMED,
    }


@pytest.mark.parametrize(
    ("flags", "phase", "says"),
    [
        (("--no-such-flag",), Phase.ARGUMENTS, "--no-such-flag"),
        (("-ctk", "q3_9"), Phase.ARGUMENTS, "q3_9"),
        # without fit, which says the same in a probe and leaves that line when the other is lost
        (("-fa", "off", "-ctv", "q4_0", "-fit", "off"), Phase.CONTEXT, "flash_attn"),
    ],
)
def test_option(flags: tuple[str, ...], phase: Phase, says: str, lab: Lab, models: Models) -> None:
    model = models(tiny("llama"))
    # 10068 has no context then and dies of it: two logs of three lack the refusal
    provoked = first_named(repeat(lambda: lab.run(model, "-c", "512", "-np", "1", *flags), 30))
    assert named(provoked.failure) == refusal(Kind.CONFIG, phase)
    assert says in provoked.failure.text
    assert "lack of memory" in provoked.failure.not_this
    assert provoked.trial.outcome is TrialOutcome.FAILED


@pytest.mark.parametrize("damage", ["truncated", "not a GGUF", "missing"])
def test_file(damage: str, lab: Lab, models: Models, tmp_path: Path) -> None:
    good = models(tiny("llama"))
    path = tmp_path / "model.gguf"
    if damage == "truncated":
        path.write_bytes(good.read_bytes()[:-100_000])
    elif damage == "not a GGUF":
        path.write_bytes(b"PK\x03\x04" + bytes(100_000))
    provoked = first_named(repeat(lambda: lab.run(path, "-c", "512", "-np", "1"), 10))
    assert named(provoked.failure) == refusal(Kind.MODEL, Phase.LOAD)
    assert "lack of memory" in provoked.failure.not_this
    assert all(f.phase is Phase.FIT for f in provoked.trial.secondary if f.kind is Kind.MODEL)
    assert lab.run(good, "-c", "512", "-np", "1").trial.outcome is TrialOutcome.SERVED


def test_port_taken(lab: Lab, models: Models, tmp_path: Path) -> None:
    """A trial picks a free port; the user's own log shows one that was taken."""
    log = tmp_path / "server.log"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        model = str(models(tiny("llama")))
        argv = [str(lab.engine.path), "-m", model, "-c", "512", "--port", port]
        environ = lab.engine.environment({**clean_environment(), **QUIET_VULKAN})
        with start(argv, env=environ, on_line=lambda _: None, log_file=log) as running:
            ended = running.wait(60)
    assert ended is not None
    assert ended.status != 0
    (reading,) = read_log([log.read_bytes()])
    assert reading.outcome is LogOutcome.FAILED
    assert reading.failure is not None
    assert (reading.failure.kind, reading.failure.fatal) == (Kind.ENVIRONMENT, True)
    assert port in reading.failure.text
    command = [sys.executable, "-m", "arriero", "explain", str(log), "--json"]
    explained = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert explained.returncode == 1
    failure = json.loads(explained.stdout)["failure"]
    assert (failure["kind"], failure["fatal"]) == ("environment", True)
