"""What an engine was compiled for, asked of its own library."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from arriero.engine import compiled_for, find_engine
from arriero.engine.features import asked, cpu_library

AVX2 = ("SSE3", "SSSE3", "AVX", "AVX2", "F16C", "FMA", "BMI2")

pytestmark = pytest.mark.engine


def test_the_library_says_it(engine_path: Callable[[int], Path]) -> None:
    path = engine_path(10068)
    engine = find_engine(None, option=str(path), environ=os.environ, cwd=path.parent)
    assert compiled_for(engine, os.environ) == AVX2


def test_the_library_of_a_wheel_that_another_took_the_place_of(
    engine_path: Callable[[int], Path], tmp_path: Path
) -> None:
    kept = engine_path(10434).with_name("libggml-cpu.so.wheel")
    if not kept.is_file():
        kept = engine_path(10434).with_name("libggml-cpu.so")
    shutil.copy(kept, tmp_path / "libggml-cpu.so")
    for name in ("libggml-base.so", "libggml-base.so.0"):
        shutil.copy(engine_path(10434).with_name("libggml-base.so"), tmp_path / name)
    found = asked(tmp_path / "libggml-cpu.so", os.environ)
    assert found is not None
    assert {"AVX512", "AVX512_VBMI", "AVX512_VNNI", "AVX_VNNI", "AMX_INT8"} <= {*found}


def test_an_engine_that_chooses_at_its_start_has_no_one_library(tmp_path: Path) -> None:
    (tmp_path / "libggml-cpu.so").touch()
    assert cpu_library(tmp_path) == tmp_path / "libggml-cpu.so"
    (tmp_path / "libggml-cpu-haswell.so").touch()
    assert cpu_library(tmp_path) is None
    assert cpu_library(tmp_path / "nowhere" / "bin") is None


@pytest.mark.parametrize("content", [b"", b"\x7fELF damaged", b"#!/bin/sh\nexit 0\n"])
def test_what_is_no_library_says_nothing(content: bytes, tmp_path: Path) -> None:
    library = tmp_path / "libggml-cpu.so"
    library.write_bytes(content)
    assert asked(library, os.environ) is None


def test_another_library_says_nothing(engine_path: Callable[[int], Path]) -> None:
    assert asked(engine_path(10068).with_name("libggml-base.so"), os.environ) is None


def test_what_a_script_starts_is_not_known(
    engine_path: Callable[[int], Path], tmp_path: Path
) -> None:
    path = engine_path(10068)
    script = tmp_path / "llama-server"
    script.write_text(f'#!/bin/sh\nexec {path} "$@"\n')
    script.chmod(0o755)
    shutil.copy(path.with_name("libggml-cpu.so"), tmp_path)
    engine = find_engine(None, option=str(script), environ=os.environ, cwd=tmp_path)
    assert compiled_for(engine, os.environ) is None
