"""Which workers an engine can use, and which it refuses for the version of their protocol."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from arriero.base.errors import EngineError
from arriero.engine import Engine, find_engine
from arriero.engine.devices import Refusal, ask_workers
from arriero.process import free_port
from tests.provoked.provoking import QUIET_VULKAN, worker

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the engines here are for Linux")
ENVIRON = {"PATH": os.environ["PATH"], **QUIET_VULKAN}


def find(path: Path) -> Engine:
    return find_engine(None, option=str(path), environ={"PATH": ""}, cwd=path.parent)


@pytest.mark.engine
@pytest.mark.parametrize(("build", "other", "speaks"), [(10068, 10434, "5"), (10434, 10068, "4")])
def test_workers_of_two_builds(
    build: int, other: int, speaks: str, engine_path: Callable[[int], Path]
) -> None:
    engine = find(engine_path(build))
    nobody = f"127.0.0.1:{free_port()}"
    with worker(engine) as (same, _), worker(find(engine_path(other))) as (skewed, _):
        devices, refused = ask_workers(engine, ENVIRON, [nobody, skewed, same])
    assert devices is not None
    assert [device.description for device in devices] == [same]
    assert list(refused) == [skewed]
    assert refused[skewed].version.startswith(f"{speaks}.")
    assert not refused[skewed].fatal


ABORTS = """\
case "$1" in
  --version) echo 'version: 11434 (abcdef1)' >&2; exit;;
  --help)
    printf '%s\\n' '-m, --model FNAME  path' '-c, --ctx-size N  size' '--port PORT  port'
    printf '%s\\n' '--rpc SERVERS  workers' '--list-devices  list'; exit;;
esac
case "$2" in
  *gone:1*) echo 'ggml-rpc.cpp:547: Failed to connect to gone:1' >&2; kill -ABRT $$;;
  *old:2*)
    echo 'ggml-rpc.cpp:550: RPC handshake failed for old:2' >&2
    echo '0.00.008.255 E RPC server version mismatch: 5.0.0' >&2; kill -ABRT $$;;
  *mute:3*) echo 'ggml-rpc.cpp:550: RPC handshake failed for mute:3' >&2; kill -ABRT $$;;
  *driver:4*) echo 'driver says no' >&2; exit 1;;
esac
echo 'Available devices:'
echo '  RPC0: same:5 (100 MiB, 90 MiB free)'
"""
"""A stand-in that prints what build 11434 does, which is not among the engines here."""


def test_an_engine_that_aborts_at_the_first_that_it_cannot_use(tmp_path: Path) -> None:
    server = tmp_path / "llama-server"
    server.write_text(f"#!/bin/sh\n{ABORTS}")
    server.chmod(0o755)
    engine = find(server)
    devices, refused = ask_workers(engine, ENVIRON, ["gone:1", "old:2", "mute:3", "same:5"])
    assert [device.description for device in devices or ()] == ["same:5"]
    assert refused == {
        "old:2": Refusal("5.0.0", fatal=True),
        "mute:3": Refusal("", fatal=True),
    }
    with pytest.raises(EngineError, match="driver says no"):
        ask_workers(engine, ENVIRON, ["driver:4"])
