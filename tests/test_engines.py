"""``make engines``: what it puts in place of a CPU library, without a download."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from arriero.machine import CpuFeatures

SCRIPT = Path(__file__).resolve().parents[1] / "scripts" / "engines.py"
NAMES = ("libggml-cpu.so", "libggml-cpu.so.0", "libggml-cpu.so.0.20.0")
NEWER = ("AVX2", "AVX512")
HASWELL = CpuFeatures(frozenset({"AVX2"}), frozenset({"AVX512"}))
ZEN = CpuFeatures(frozenset({"AVX2", "AVX512"}), frozenset())


@pytest.fixture
def engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, on engines whose libraries are words: what they were compiled for."""
    spec = importlib.util.spec_from_file_location("engines", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "engines", module)
    spec.loader.exec_module(module)
    for build in (10068, 10092, 10434):
        place = tmp_path / str(build) / module.INSIDE
        place.mkdir(parents=True)
        (place / "llama-server").touch()
        for name in NAMES:
            (place / name).write_text("AVX2" if build == 10068 else " ".join(NEWER))
    monkeypatch.setattr(module, "ENGINES", tmp_path)
    monkeypatch.setattr(module, "asked", lambda library, _: tuple(library.read_text().split()))
    monkeypatch.setattr(module, "_try", lambda engine, build: None)
    return module


def libraries(engines: ModuleType, build: int) -> set[str]:
    return {(engines.ENGINES / str(build) / engines.INSIDE / name).read_text() for name in NAMES}


def made(engines: ModuleType, build: int) -> str:
    text = (engines.ENGINES / str(build) / "made.json").read_text()
    return str(json.loads(text)["library"])


def test_the_wheels_own_is_used_where_it_runs(
    engines: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "this_cpu", lambda: ZEN)
    assert engines.main(["10068", "10092"]) == 0
    assert libraries(engines, 10092) == {"AVX2 AVX512"}
    assert made(engines, 10092) == "the wheel's own CPU library"


def test_another_takes_its_place_once_and_goes_where_it_is_not_needed(
    engines: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(engines, "this_cpu", lambda: HASWELL)
    assert engines.main(["10092"]) == 0
    assert libraries(engines, 10092) == {"AVX2"}
    assert "AVX512, which this one lacks" in capsys.readouterr().out
    assert made(engines, 10092) == "the CPU library of build 10068"
    assert engines.main(["10068", "10092"]) == 0
    assert capsys.readouterr().out == "", "what is done is not done again"
    monkeypatch.setattr(engines, "this_cpu", lambda: ZEN)
    assert engines.main(["10092"]) == 0
    assert libraries(engines, 10092) == {"AVX2 AVX512"}


def test_without_a_compiler_a_slower_one_is_taken_and_named(
    engines: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def slower(version: str, scratch: Path) -> Path:
        (scratch / "library").write_text("AVX2")
        return scratch / "library"

    monkeypatch.setattr(engines, "this_cpu", lambda: HASWELL)
    monkeypatch.setattr(engines.shutil, "which", lambda name: None)
    monkeypatch.setattr(engines, "_of_libggml", slower)
    assert engines.main(["10434"]) == 0
    assert libraries(engines, 10434) == {"AVX2"}
    assert "slower" in made(engines, 10434)
    assert "no C++ compiler" in capsys.readouterr().out


def test_one_that_dies_although_nothing_is_missing_is_replaced_too(
    engines: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tried(engine: Path, build: int) -> None:
        if "AVX512" in engine.with_name(NAMES[0]).read_text():
            raise engines.CannotError("it died of SIGILL")

    monkeypatch.setattr(engines, "this_cpu", lambda: None)
    monkeypatch.setattr(engines, "_try", tried)
    assert engines.main(["10092"]) == 0
    assert libraries(engines, 10092) == {"AVX2"}


def test_a_cpu_that_no_library_suits(
    engines: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    old = CpuFeatures(frozenset(), frozenset({"AVX2", "AVX512"}))
    monkeypatch.setattr(engines, "this_cpu", lambda: old)
    assert engines.main(["10068", "10092"]) == 1
    said = capsys.readouterr()
    assert "AVX2, which this one lacks" in said.out
    assert "no other CPU library" in said.err
    assert not (engines.ENGINES / "10092" / "made.json").exists()
